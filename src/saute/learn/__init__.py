"""What learners are made of."""
