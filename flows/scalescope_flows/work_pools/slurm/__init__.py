"""A Prefect work pool whose flow runs are Slurm jobs, submitted with plain sbatch.

    prefect worker start --type slurm --pool NAME        on a login node; no slurmrestd, no root, no database

`configuration` has the settings of a pool, a deployment or a run; `worker` connects `scalescope.slurm` to Prefect. The
name and comment of a job identify its flow run, so a restarted worker, or another one, can go on watching the job.
"""
