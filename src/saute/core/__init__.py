"""The Sauté transformation: its options, costs and observations, and its forms for one environment, for vectors, for JAX."""
