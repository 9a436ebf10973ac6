"""What a user runs beside training: verify, doctor, export, video."""
