"""Workers in jobs of Slurm."""
