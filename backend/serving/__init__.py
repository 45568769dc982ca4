"""Where a run is written: in this process, or by replicas on Ray Serve."""
