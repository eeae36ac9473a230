"""How many GPUs a fleet of agents needs: a closed queueing model over measured stage times, and a simulation of it."""
