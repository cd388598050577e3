"""padasip: adaptive filters of one client each; nothing is shared, so nothing can be poisoned."""

import time

import numpy as np
import padasip
from common import read_job, report

job = read_job()
errors, started = [], time.process_time()
for t in job.trials:
    models = np.zeros((len(job.inputs[t]), len(job.target)))
    msd = []
    for k in range(job.num_clients):
        one = padasip.filters.FilterLMS(n=len(job.target), mu=job.stepsize, w="zeros")
        _, _, models = one.run(job.outputs[t, :, k], job.inputs[t, :, k])
        msd.append(job.steady_msd(models))
    errors.append(float(np.mean(msd)))
seconds = time.process_time() - started
report(
    ["padasip", "numpy"],
    msd={"padasip, LMS of each client alone": errors},
    rates={"padasip, `FilterLMS.run`": job.outputs.size / seconds},
)
