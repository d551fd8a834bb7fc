"""torchmetrics: classification, regression, images, text, retrieval, aggregation, collections."""

from __future__ import annotations

import torch
import torchmetrics as tm
from common import data, labels
from torchmetrics import functional as F


def _over_batches(metric, *batches):
    for batch in batches:
        metric.update(*batch)
    first = metric.compute()
    metric.reset()
    metric.update(*batches[0])
    return [first, metric.compute()]


def case_classification():
    batches = [(data(20, 4, seed=i).softmax(-1), labels(4, 20, seed=i)) for i in range(3)]
    kinds = [
        tm.Accuracy("multiclass", num_classes=4),
        tm.F1Score("multiclass", num_classes=4, average="macro"),
        tm.Precision("multiclass", num_classes=4, average=None),
        tm.ConfusionMatrix("multiclass", num_classes=4),
        tm.AUROC("multiclass", num_classes=4),
        tm.AveragePrecision("multiclass", num_classes=4),
        tm.CalibrationError("multiclass", num_classes=4),
        tm.CohenKappa("multiclass", num_classes=4),
        tm.MatthewsCorrCoef("multiclass", num_classes=4),
        tm.JaccardIndex("multiclass", num_classes=4),
        tm.Specificity("multiclass", num_classes=4),
        tm.HingeLoss("multiclass", num_classes=4),
        tm.AUROC("multiclass", num_classes=4, thresholds=5),
        tm.StatScores("multiclass", num_classes=4, average=None),
    ]
    return [_over_batches(kind, *batches) for kind in kinds]


def case_binary():
    batches = [(data(30, seed=i).sigmoid(), labels(2, 30, seed=i)) for i in range(2)]
    kinds = [
        tm.Accuracy("binary"),
        tm.AUROC("binary"),
        tm.ROC("binary", thresholds=7),
        tm.PrecisionRecallCurve("binary", thresholds=5),
        tm.F1Score("binary"),
        tm.classification.BinaryRecallAtFixedPrecision(0.5),
    ]
    return [_over_batches(kind, *batches) for kind in kinds]


def case_regression():
    batches = [(data(25, seed=i), data(25, seed=i) + data(25, seed=9 + i)) for i in range(2)]
    kinds = [
        tm.MeanSquaredError(),
        tm.MeanAbsoluteError(),
        tm.R2Score(),
        tm.PearsonCorrCoef(),
        tm.SpearmanCorrCoef(),
        tm.KendallRankCorrCoef(),
        tm.ExplainedVariance(),
        tm.ConcordanceCorrCoef(),
        tm.MeanAbsolutePercentageError(),
    ]
    return [_over_batches(kind, *batches) for kind in kinds]


def case_images():
    a, b = data(2, 3, 32, 32).sigmoid(), data(2, 3, 32, 32, seed=1).sigmoid()
    a.requires_grad_()
    similarity = F.structural_similarity_index_measure(a, b, data_range=1.0)
    similarity.backward()
    return [
        similarity,
        a.grad,
        F.peak_signal_noise_ratio(a, b, data_range=1.0),
        F.multiscale_structural_similarity_index_measure(
            data(1, 1, 180, 180).sigmoid(), data(1, 1, 180, 180, seed=1).sigmoid(), data_range=1.0
        ),
        F.total_variation(a),
        F.universal_image_quality_index(a, b),
        F.spectral_angle_mapper(a, b),
        F.error_relative_global_dimensionless_synthesis(a, b),
    ]


def case_audio_and_pairs():
    a, b = data(2, 100), data(2, 100, seed=1)
    x = data(6, 4)
    return [
        F.scale_invariant_signal_distortion_ratio(a, b),
        F.signal_noise_ratio(a, b),
        F.pairwise_cosine_similarity(x),
        F.pairwise_euclidean_distance(x),
        F.pairwise_linear_similarity(x),
        F.pairwise_manhattan_distance(x),
    ]


def case_text():
    said, due = ["the cat sat on a mat", "it is"], ["a cat sat on the mat", "it was"]
    logits, target = data(2, 5, 7), labels(7, 2, 5)
    return [
        tm.text.WordErrorRate()(said, due),
        tm.text.CharErrorRate()(said, due),
        tm.text.BLEUScore(2)(said, [[d] for d in due]),
        tm.text.Perplexity()(logits, target),
        tm.text.CHRFScore()(said, [[d] for d in due]),
        tm.text.EditDistance()(said, due),
    ]


def case_retrieval():
    index, scores, target = labels(3, 20), data(20).sigmoid(), labels(2, 20, seed=4)
    return [
        kind(scores, target, indexes=index)
        for kind in (
            tm.retrieval.RetrievalMAP(),
            tm.retrieval.RetrievalMRR(),
            tm.retrieval.RetrievalNormalizedDCG(),
            tm.retrieval.RetrievalPrecision(top_k=2),
        )
    ]


def case_collections():
    metrics = tm.MetricCollection(
        {
            "top": tm.Accuracy("multiclass", num_classes=4),
            "f": tm.F1Score("multiclass", num_classes=4),
            "matrix": tm.ConfusionMatrix("multiclass", num_classes=4),
        }
    )
    for i in range(2):
        metrics.update(data(20, 4, seed=i), labels(4, 20, seed=i))
    mean = tm.MeanMetric()
    mean.update(data(5))
    mean.update(2.0, weight=3.0)
    cat, running = tm.CatMetric(), tm.aggregation.RunningMean(window=2)
    for i in range(3):
        cat.update(data(2, seed=i))
        running.update(float(i))
    tracker = tm.MetricTracker(tm.MeanSquaredError(), maximize=False)
    for i in range(2):
        tracker.increment()
        tracker.update(data(5, seed=i), data(5, seed=7))
    state = tm.MeanSquaredError()
    state.persistent(True)
    state.update(data(4), data(4, seed=1))
    other = tm.MeanSquaredError()
    other.persistent(True)
    other.load_state_dict(state.state_dict())
    other._update_count = 1
    boot = tm.ClasswiseWrapper(tm.Accuracy("multiclass", num_classes=3, average=None))
    return [
        metrics.compute(),
        mean.compute(),
        cat.compute(),
        running.compute(),
        tracker.compute_all(),
        tracker.best_metric(),
        other.compute(),
        boot(data(9, 3), labels(3, 9)),
        (tm.SumMetric() + 1)(torch.ones(2)),
    ]


def case_detection():
    from torchmetrics.detection import IntersectionOverUnion

    boxes = torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 7]])
    metric = IntersectionOverUnion()
    metric.update(
        [{"boxes": boxes, "labels": torch.tensor([0, 1])}],
        [{"boxes": boxes + 1, "labels": torch.tensor([0, 1])}],
    )
    return metric.compute()
