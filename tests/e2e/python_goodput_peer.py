"""Answers questions about goodput with the published Python package, which must be installed. Each line of standard
input is a JSON object, and each gets a line of standard output. goodput_program.cc answers the same questions.

"what" is one of
  evaluate            perf grad init nodes replicas atomic accum -> [throughput, efficiency, goodput]
  optimize            perf grad init max min_local max_local accumulation nodes replicas (the last two are lists of one)
                      -> [goodput, atomic, accum]
  optimize many       the same with longer lists -> a list of such answers
  fit                 observations: lists of nodes, replicas, batch size, accumulation and optimizer step time
                      -> the 7 parameters
  time optimize, time optimize many, time fit
                      the same and repeat -> [seconds of the fastest repetition, a number that depends on the result]
"""

import json
import sys
import time
import warnings

import numpy

numpy.int = int  # the package uses this name, which NumPy has removed

from adaptdl.goodput import GoodputFunction, fit_perf_params

warnings.simplefilter("ignore")


def function_of(question):
    return GoodputFunction(question["perf"], question["grad"], question["init"])


def options_of(question):
    return dict(
        max_batch_size=question["max"],
        atomic_bsz_range=(question["min_local"], question["max_local"]),
        accumulation=question["accumulation"],
    )


def columns_of(question):
    return [numpy.array(column) for column in zip(*question["observations"])]


def quickest(question, work):
    times = []
    for _ in range(question["repeat"]):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return [min(times), float(result)]


def answer_to(question):
    what = question["what"]
    if what == "evaluate":
        function = function_of(question)
        configuration = [question[name] for name in ("nodes", "replicas", "atomic", "accum")]
        batch_size = question["replicas"] * question["atomic"] * (question["accum"] + 1)
        return [float(value) for value in
                (function.throughput(*configuration), function.efficiency(batch_size), function(*configuration))]
    if what == "fit":
        return [float(value) for value in fit_perf_params(*columns_of(question))]
    if what == "time fit":
        columns = columns_of(question)
        return quickest(question, lambda: fit_perf_params(*columns).gamma)
    function, options = function_of(question), options_of(question)
    nodes, replicas = numpy.array(question["nodes"]), numpy.array(question["replicas"])
    pairs = list(zip(question["nodes"], question["replicas"]))
    if what == "optimize":
        return list(function.optimize(*pairs[0], **options))
    if what == "optimize many":
        return [[float(goodput), int(atomic), int(accum)]
                for goodput, atomic, accum in zip(*function.optimize(nodes, replicas, **options))]
    if what == "time optimize":
        return quickest(question, lambda: sum(function.optimize(*pair, **options)[0] for pair in pairs))
    if what == "time optimize many":
        return quickest(question, lambda: function.optimize(nodes, replicas, **options)[0][-1])
    raise ValueError(what)


for line in sys.stdin:
    print(json.dumps(answer_to(json.loads(line))), flush=True)
