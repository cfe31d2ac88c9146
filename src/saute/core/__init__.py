"""The Sauté transformation itself: options, costs, observations, and its forms for one environment, for vectors and for JAX."""
