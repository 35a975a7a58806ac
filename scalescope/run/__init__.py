"""How a sweep is carried out: plan, clusters, trials, judgement; no Prefect."""
