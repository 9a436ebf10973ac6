"""What every part speaks: errors, schemas, channels, counts, state, and the seams' protocols."""
