"""scikit-learn style estimators around adjoint modules."""
