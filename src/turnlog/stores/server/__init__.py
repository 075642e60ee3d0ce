"""What all stores on database servers share: everything but the driver and its dialect."""
