"""Seven public tables, 20 stratified splits of 75 % to learn from and 25 % to be measured on: what
`retrograd init`, `train --folds` and `run` make of them, beside scikit-learn with its defaults.

Nothing is tuned, on either side. The tables come with scikit-learn, palmerpenguins and vega_datasets;
nothing is downloaded. Accuracy for classes, R² for numbers, mean ± standard error over the splits; the
splits are the same for all.

Defaults are not chosen by these splits. `--inner` takes others, of a training part alone, whose test part
nobody looks at; `--replace OLD NEW` changes what `init` wrote before it is trained."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings

# Tables of a few hundred rows: threads would wait for each other, above all beside other work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

NAMES = ["retrograd", "linear", "MLP", "forest", "boosting"]


def from_sklearn(load, names=None):
    bunch = load()
    columns = [str(name) for name in bunch.feature_names]
    table = pd.DataFrame(bunch.data, columns=columns)
    target = pd.Series(bunch.target)
    if hasattr(bunch, "target_names") and names is None:
        target = target.map(lambda t: str(bunch.target_names[t]))
    return table, target


def penguins():
    import palmerpenguins

    table = palmerpenguins.load_penguins().drop(columns=["year"])
    table = table.dropna(subset=["species"])
    return table.drop(columns=["species"]), table["species"]


def cars():
    from vega_datasets import data

    table = data.cars().dropna(subset=["Miles_per_Gallon"])
    # Names are all but one of a kind, and years are dates.
    table = table.drop(columns=["Name"])
    table["Year"] = pd.to_datetime(table["Year"]).dt.year
    return table.drop(columns=["Miles_per_Gallon"]), table["Miles_per_Gallon"]


def digits():
    bunch = datasets.load_digits()
    columns = [f"pixel{i}" for i in range(64)]
    target = pd.Series(bunch.target).map(lambda t: f"d{t}")
    return pd.DataFrame(bunch.data, columns=columns), target


def diabetes():
    bunch = datasets.load_diabetes()
    return pd.DataFrame(bunch.data, columns=bunch.feature_names), pd.Series(bunch.target)


def weather():
    from vega_datasets import data

    table = data.seattle_weather()
    table["day"] = table["date"].dt.dayofyear
    return table.drop(columns=["date", "weather"]), table["weather"]


def generated(make):
    x, y = make()
    return pd.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])]), pd.Series(y)


def few_classes():
    return datasets.make_classification(
        160, 10, n_informative=5, n_classes=3, n_clusters_per_class=1, class_sep=1.5, random_state=2
    )


def more_classes():
    return datasets.make_classification(
        600, 20, n_informative=6, n_classes=4, n_clusters_per_class=2, class_sep=1.2, random_state=1
    )


# Tables to choose defaults by, beside inner splits of those that are compared.
OTHERS = {
    "weather": (weather, False),
    "few classes": (lambda: generated(few_classes), False),
    "more classes": (lambda: generated(more_classes), False),
    "friedman": (
        lambda: generated(lambda: datasets.make_friedman1(400, 10, noise=1.5, random_state=1)),
        True,
    ),
}

# The table, and whether numbers are predicted.
TABLES = {
    "wine": (lambda: from_sklearn(datasets.load_wine), False),
    "breast cancer": (lambda: from_sklearn(datasets.load_breast_cancer), False),
    "iris": (lambda: from_sklearn(datasets.load_iris), False),
    "digits": (digits, False),
    "penguins": (penguins, False),
    "diabetes": (diabetes, True),
    "cars": (cars, True),
}


def split(x, y, numbers, seed):
    """A quarter is measured on. Numbers are stratified by their quintiles."""
    by = pd.qcut(y, 5, labels=False, duplicates="drop") if numbers else y
    return train_test_split(x, y, test_size=0.25, random_state=seed, stratify=by)


def peers(numbers, seed):
    prepare = lambda: make_column_transformer(
        (
            make_pipeline(SimpleImputer(), StandardScaler()),
            make_column_selector(dtype_include=np.number),
        ),
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
            ),
            make_column_selector(dtype_exclude=np.number),
        ),
        sparse_threshold=0,
    )
    if numbers:
        models = [
            Ridge(),
            MLPRegressor(random_state=seed),
            RandomForestRegressor(random_state=seed),
            HistGradientBoostingRegressor(random_state=seed),
        ]
    else:
        models = [
            LogisticRegression(max_iter=5000),
            MLPClassifier(random_state=seed),
            RandomForestClassifier(random_state=seed),
            HistGradientBoostingClassifier(random_state=seed),
        ]
    return [make_pipeline(prepare(), model) for model in models]


def score(numbers, truth, predicted):
    truth = np.asarray(truth)
    if not numbers:
        return float(np.mean(np.asarray(predicted).astype(str) == truth.astype(str)))
    error = np.square(truth - np.asarray(predicted, dtype=float)).sum()
    return float(1 - error / np.square(truth - truth.mean()).sum())


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def replaced(text, old, new):
    if old not in text:
        sys.exit(f"init wrote no {old!r}")
    return text.replace(old, new)


def ours(retrograd, x, y, x_new, numbers, seed, extra, edit):
    """init, train, run, as one would type them."""
    with tempfile.TemporaryDirectory() as folder:
        x.assign(target=y).to_csv(f"{folder}/train.csv", index=False)
        x_new.to_csv(f"{folder}/new.csv", index=False)
        run([retrograd, "init", "train.csv", "--target", "target"], folder)
        if edit:
            text = edit(open(f"{folder}/train.toml").read())
            open(f"{folder}/train.toml", "w").write(text)
        quiet = ["--no-verify", "--no-report", "--threads", "1", "--seed", str(seed)]
        run([retrograd, "train", "train.toml", *quiet, *extra], folder)
        run([retrograd, "run", "runs/train", "new.csv", "--out", "said.csv"], folder)
        said = pd.read_csv(f"{folder}/said.csv", keep_default_na=False)
        return said["predicted_target"]


def measure(table, splits, options):
    load, numbers = (TABLES | OTHERS)[table]
    x, y = load()
    rows = []
    for seed in range(splits):
        if options.inner:
            within, _, values, _ = split(x, y, numbers, 100 + seed)
            x_train, x_new, y_train, y_new = split(within, values, numbers, 500 + seed)
        else:
            x_train, x_new, y_train, y_new = split(x, y, numbers, seed)
        row = []
        if not options.only_peers:
            said = ours(
                options.retrograd, x_train, y_train, x_new, numbers, seed, options.train, options.edit
            )
            row.append(score(numbers, y_new, said))
        if not options.only_ours:
            for model in peers(numbers, seed):
                model.fit(x_train, y_train)
                row.append(score(numbers, y_new, model.predict(x_new)))
        rows.append(row)
        print(f"{table} {seed}: " + " ".join(f"{v:.4f}" for v in row), file=sys.stderr, flush=True)
    return np.array(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--retrograd", default="retrograd", help="the command")
    parser.add_argument("--train", nargs="*", default=["--folds", "5"], help="options of train")
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--only-peers", action="store_true")
    parser.add_argument("--json", help="where the scores go")
    parser.add_argument("--inner", action="store_true", help="splits to choose defaults by")
    parser.add_argument("--replace", nargs=2, metavar=("OLD", "NEW"), help="in what init writes")
    options = parser.parse_args()
    if os.sep in options.retrograd:
        options.retrograd = os.path.abspath(options.retrograd)
    options.edit = options.replace and (lambda text: replaced(text, *options.replace))
    warnings.filterwarnings("ignore")
    names = NAMES[int(options.only_peers) :][: 1 if options.only_ours else None]
    print("| table | rows | " + " | ".join(names) + " | place |")
    print("|---|---|" + "---|" * (len(names) + 1))
    all_scores, well = {}, 0
    for table in options.tables:
        scores = measure(table, options.splits, options)
        all_scores[table] = scores.tolist()
        mean = scores.mean(axis=0)
        error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0 * mean
        # As many are above as are better by what is shown.
        place = 1 + int(np.sum(np.round(mean, 4) > np.round(mean[0], 4)))
        well += place <= 2
        cells = [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error)]
        load, numbers = (TABLES | OTHERS)[table]
        rows = len(load()[1])
        what = "R²" if numbers else "accuracy"
        print(f"| {table}, {what} | {rows} | " + " | ".join(cells) + f" | {place} |", flush=True)
    print(f"\nFirst or second on {well} of {len(options.tables)}.")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(all_scores, file)


if __name__ == "__main__":
    main()
