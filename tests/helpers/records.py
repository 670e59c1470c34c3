"""Records of runs, as a trainer writes them."""


def of_own_data(loss, accuracies, **changes):
    """Runs of the seeds from 1 on; None has no test accuracy."""
    recipe = {"dataset": "mine.csv", "noise": "none", "loss": loss, "precision": "float32", "l1": 0.0, "l2": 0.0, **changes}
    results = [{} if accuracy is None else {"test_accuracy": accuracy} for accuracy in accuracies]
    return [{"recipe": {**recipe, "seed": k}, "result": result, "task": {}} for k, result in enumerate(results, 1)]
