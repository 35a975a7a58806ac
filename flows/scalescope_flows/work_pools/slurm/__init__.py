"""A Prefect work pool whose flow runs are Slurm jobs, submitted with plain sbatch.

```
prefect worker start --type slurm --pool NAME        on a login node; no slurmrestd, no root, no database
```

`configuration` says what a pool, a deployment or a run may set, `sbatch` speaks with Slurm, `output` follows a job's
output, and `worker` ties them to Prefect. A flow run is found again by its job's name and comment, so a worker that is
started again, or its neighbour, goes on watching jobs that another has submitted.
"""
