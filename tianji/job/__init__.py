"""From a configuration to role specs, channels and roles."""
