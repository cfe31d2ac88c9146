"""What evaluated episodes prove, and pictures of it."""
