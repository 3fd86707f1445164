"""Compares our goodput with that of the published Python package `adaptdl` from the Python Package Index.

If several optima are equally good, only rounding decides between them, so we and the package may choose different sizes.
"""

import math
import random
import statistics
import unittest

import goodput_support
import python_peer

CONFIGURATIONS = 10_000
TOLERANCE = 1e-6
# The number of an application's observations that are fitted, and the number of random draws of these observations.
FITTED = {"half fitted": (lambda everything: len(everything) // 2, 3), "50 fitted": (lambda everything: 50, 8)}
SLACK = 1.01  # far more than the effect of rounding on the mean of all applications


class PythonGoodputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours, cls.python = goodput_support.programs()
        cls.addClassCleanup(cls.ours.end)
        cls.addClassCleanup(cls.python.end)

    def both(self, **question):
        return self.ours.ask(**question), self.python.ask(**question)

    def assert_close(self, ours, python, question):
        self.assertLessEqual(abs(ours - python), TOLERANCE * max(abs(python), 1e-300), question)

    def assert_same_optimum(self, ours, python, question):
        """Returns whether both optima have the same sizes. If the sizes differ, the optima must be equally good."""
        self.assert_close(ours[0], python[0], question)
        if ours[1:] == python[1:]:
            return True
        where = dict(question, what="evaluate", nodes=question["nodes"][0], replicas=question["replicas"][0])
        throughput, efficiency, goodput = self.python.ask(**dict(where, atomic=ours[1], accum=ours[2]))
        self.assertLess(abs(goodput / python[0] - 1), 1e-12, question)
        return False

    def test_goodput_and_efficiency_agree_with_the_python_package_on_random_configurations(self):
        chosen = random.Random(1)
        for _ in range(CONFIGURATIONS):
            question = random_function(chosen)
            question["replicas"] = chosen.randint(1, 64)
            question["nodes"] = chosen.randint(1, question["replicas"])
            question["accum"] = chosen.choice([0, 0, 1, 3, 15])
            least = math.ceil(question["init"] / question["replicas"] / (question["accum"] + 1))
            question["atomic"] = least + int(2 ** chosen.uniform(0, 10)) - 1
            ours, python = self.both(what="evaluate", **question)
            for mine, theirs in zip(ours, python, strict=True):
                self.assert_close(mine, theirs, question)

    def test_optimize_agrees_with_the_python_package_on_random_configurations(self):
        chosen = random.Random(2)
        equals = impossible = 0
        for _ in range(CONFIGURATIONS):
            question = dict(random_function(chosen), what="optimize", **random_limits(chosen))
            question["replicas"] = [1 if chosen.random() < 0.2 else chosen.randint(2, 64)]
            question["nodes"] = [chosen.randint(1, question["replicas"][0])]
            ours, python = self.both(**question)
            equals += not self.assert_same_optimum(ours, python, question)
            impossible += python[0] == 0
        # The comparison is meaningful only if nearly all optima are unique and most of them are feasible.
        self.assertLess(equals, CONFIGURATIONS / 100)
        self.assertLess(impossible, CONFIGURATIONS / 5)

    def test_optimize_agrees_with_the_python_package_on_batches_of_configurations(self):
        chosen = random.Random(3)
        for _ in range(50):
            question = dict(random_function(chosen), what="optimize many", **random_limits(chosen))
            question["replicas"] = [chosen.randint(1, 100) for _ in range(200)]
            question["nodes"] = [chosen.randint(1, replicas) for replicas in question["replicas"]]
            for place, (mine, theirs) in enumerate(zip(*self.both(**question), strict=True)):
                one = dict(question, nodes=question["nodes"][place:place + 1],
                           replicas=question["replicas"][place:place + 1])
                self.assert_same_optimum(mine, theirs, one)

    def test_fitted_parameters_are_as_accurate_as_those_of_the_python_package(self):
        # On some splits, the package stops in a worse minimum, which may predict better by chance. Which splits are
        # affected depends on the last bits of the package's arithmetic. So the predictions are compared across all
        # applications, and for each split only the error that both minimize is compared.
        for name, (fitted_of, seeds) in FITTED.items():
            means = []
            for application in goodput_support.applications():
                everything = goodput_support.observations(application)
                errors = []
                for seed in range(seeds):
                    with self.subTest(application=application, fitted=name, seed=seed):
                        errors.append(self.compare_fits(everything, fitted_of(everything), seed))
                means.append([statistics.mean(column) for column in zip(*errors, strict=True)])
                print(f"{application}: {fitted_of(everything)} of {len(everything)} fitted, root mean squared log error"
                      f" of the rest {means[-1][0]:.4f}, of the Python package {means[-1][1]:.4f}, mean of {seeds}")
            ours, python = (statistics.mean(column) for column in zip(*means, strict=True))
            print(f"all applications, {name}: {ours:.4f}, of the Python package {python:.4f}")
            with self.subTest(fitted=name):
                self.assertLessEqual(ours, python * SLACK)

    def compare_fits(self, everything, number, seed):
        """Fits a random split, and returns our error and the Python package's error at the held-out observations."""
        fitted, held_out = goodput_support.split(everything, number, seed)
        ours, python = self.both(what="fit", observations=fitted)
        least = self.ours.ask(what="least error fit", observations=fitted)
        error, optim_error = self.fit_error(least, fitted)
        self.assertLessEqual(error, self.fit_error(python, fitted)[0] + TOLERANCE)
        # For more plausible parameters, our fit accepts an error that is larger by up to a unit of log-likelihood and the
        # full retrogression penalty of a free link.
        self.assertLessEqual(self.fit_error(ours, fitted)[0], error + optim_error / number + 0.01 + TOLERANCE)
        return self.held_out_error(ours, held_out), self.held_out_error(python, held_out)

    def fit_error(self, perf, fitted):
        return self.ours.ask(what="fit error", perf=perf, observations=fitted)

    def held_out_error(self, perf, held_out):
        squares = []
        for nodes, replicas, bsz, _, step_time in held_out:
            throughput = self.ours.ask(what="evaluate", perf=perf, grad=[1, 1], init=1, nodes=nodes, replicas=replicas,
                                       atomic=bsz, accum=0)[0]
            squares.append((math.log(replicas * bsz / throughput) - math.log(step_time)) ** 2)
        return math.sqrt(statistics.mean(squares))


def random_function(chosen):
    perf = [10 ** chosen.uniform(-4, 0.5) for _ in range(6)] + [chosen.choice([1.0, 10.0, chosen.uniform(1, 10)])]
    grad = [10 ** chosen.uniform(-4, 2), 10 ** chosen.uniform(-3, 4)]
    return dict(perf=perf, grad=grad, init=int(2 ** chosen.uniform(0, 10)))


def random_limits(chosen):
    """Returns limits that suit any function from random_function(), whose initial batch size is at most 1024."""
    least = chosen.choice([None, int(2 ** chosen.uniform(0, 6))])
    return dict(
        max=chosen.randint(1024, 100_000),
        min_local=least,
        max_local=chosen.choice([None, (least or 1) + int(2 ** chosen.uniform(4, 12))]),
        accumulation=chosen.random() < 0.5,
    )


if __name__ == "__main__":
    python_peer.main()
