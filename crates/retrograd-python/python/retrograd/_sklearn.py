"""What the estimators take from scikit-learn, which must be there for them."""

from __future__ import annotations

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"retrograd's estimators need scikit-learn 1.6 or later: pip install scikit-learn ({error})"
    ) from None

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "TransformerMixin",
    "_check_sample_weight",
    "check_classification_targets",
    "check_is_fitted",
    "seed_of",
    "validate_data",
]


def seed_of(random_state) -> int:
    """A number that is given, or one that a generator draws."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
