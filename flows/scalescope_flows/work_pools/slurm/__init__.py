"""A Prefect work pool whose flow runs are Slurm jobs, submitted with plain sbatch.

    prefect worker start --type slurm --pool NAME        on a login node; no slurmrestd, no root, no database

`configuration` has what a pool, a deployment or a run may set, and `worker` ties `scalescope.slurm` to Prefect. A flow
run is found by its job's name and comment, so a restarted worker, or another one, goes on watching the job.
"""
