//! From files to samples, by the rules of a `[data]` part.

use super::{load, says};
use crate::Target;
use crate::data::prepare::{Encoding, Inputs, TargetRule};
use crate::data::{Array, DataSpec, Preparation, Targets, TaskKind, Values, npy};

const FLOWERS: &str = "width,colour,days,kind
1,red,10,rose
2,blue,20,iris
3,red,30,rose
4,white,40,lily
5,blue,50,iris
6,red,60,lily
";

fn flowers(spec: &str) -> crate::Result<crate::data::Data> {
    load(
        &[("f.csv", FLOWERS.as_bytes())],
        &format!("file = 'f.csv'\n{spec}"),
    )
}

#[test]
fn columns_become_numbers_and_categories_and_labels_become_classes() {
    let data = flowers("targets = 'kind'\nvalidation = 0").unwrap();
    assert!(data.validation.is_none());
    assert_eq!(data.preparation.task(), TaskKind::Classification);
    assert_eq!(data.preparation.classes(), ["iris", "lily", "rose"]);
    assert_eq!(
        data.preparation.input_names(),
        ["width", "colour=blue", "colour=red", "colour=white", "days"]
    );
    assert_eq!(data.train.sample_shape(), [5]);
    assert_eq!(
        data.train.inputs()[..10],
        [1.0, 0.0, 1.0, 0.0, 10.0, 2.0, 1.0, 0.0, 0.0, 20.0]
    );
    let expected = Targets::Classes {
        count: 3,
        classes: vec![2, 0, 2, 1, 0, 1],
    };
    assert_eq!(data.train.targets(), &expected);
    // Chosen, ignored and numeric-looking columns.
    let data = flowers("targets = 'kind'\ninputs = 'days'\ncategories = 'days'\nvalidation = 0");
    assert_eq!(
        data.unwrap().preparation.input_names()[..2],
        ["days=10", "days=20"]
    );
    let data = flowers("targets = ['days', 'width']\nignore = ['kind']\nvalidation = 0").unwrap();
    assert_eq!(data.preparation.task(), TaskKind::Regression);
    let Targets::Values { values, shape } = data.train.targets() else {
        panic!("values");
    };
    assert_eq!((&values[..2], &shape[..]), (&[10.0, 1.0][..], &[2][..]));
    // The classes' order as given.
    let spec = "targets = 'kind'\nclasses = ['rose', 'lily', 'iris']\nvalidation = 0";
    assert_eq!(flowers(spec).unwrap().preparation.classes()[0], "rose");
}

#[test]
fn statistics_come_from_the_training_part_alone() {
    // Without shuffling the last third is for validation: training is 1, 2, 3, 4.
    let spec = |normalise: &str| {
        flowers(&format!(
            "targets = 'days'\ninputs = 'width'\nnormalise = '{normalise}'\nnormalise_targets = '{normalise}'\nshuffle = false\nvalidation = 0.33"
        ))
        .unwrap()
    };
    let data = spec("standard");
    // Mean 2.5, standard deviation √1.25.
    let scaled = |x: f64| ((x - 2.5) / 1.25_f64.sqrt()) as f32;
    assert_eq!(data.train.inputs(), [1.0, 2.0, 3.0, 4.0].map(scaled));
    let validation = data.validation.as_ref().unwrap();
    assert_eq!(validation.inputs(), [5.0, 6.0].map(scaled));
    // Measures are in days: predicting the training mean, 25, for 50 and 60.
    let mut scores = data.preparation.regression();
    let Targets::Values { values, .. } = validation.targets() else {
        panic!("values");
    };
    scores
        .add(&[0.0, 0.0], &Target::values(values.clone()))
        .unwrap();
    // The targets were rounded to f32 in between.
    assert!((scores.scores().mae - 30.0).abs() < 1e-5);
    let columns = data.preparation.predictions(&[0.0, values[0]], 1).unwrap();
    assert_eq!(
        columns,
        [(
            "predicted_days".to_string(),
            vec!["25".to_string(), "50".to_string()]
        )]
    );

    let data = spec("minmax");
    let third = |x: f64| ((x - 1.0) / 3.0) as f32;
    assert_eq!(data.train.inputs(), [1.0, 2.0, 3.0, 4.0].map(third));
    assert_eq!(data.validation.unwrap().inputs(), [5.0, 6.0].map(third));
}

#[test]
fn a_column_that_never_varies_becomes_zero() {
    let text = "a,y\n7,1\n7,2\n7,3\n";
    for normalise in ["standard", "minmax"] {
        let spec =
            format!("file = 'c.csv'\ntargets = 'y'\nvalidation = 0\nnormalise = '{normalise}'");
        let data = load(&[("c.csv", text.as_bytes())], &spec).unwrap();
        assert_eq!(data.train.inputs(), [0.0; 3]);
    }
}

#[test]
fn the_split_is_a_function_of_the_seed() {
    let mut text = String::from("x,y\n");
    for i in 0..100 {
        text.push_str(&format!("{i},{i}\n"));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("n.csv"), text).unwrap();
    let parts = |spec: &str, seed: u64| {
        let spec: DataSpec =
            toml::from_str(&format!("file = 'n.csv'\ntargets = 'y'\n{spec}")).unwrap();
        let data = spec.load(folder.path(), seed).unwrap();
        let validation = data.validation.unwrap().inputs().to_vec();
        (data.train.inputs().to_vec(), validation)
    };
    let (train, validation) = parts("", 1);
    assert_eq!((train.len(), validation.len()), (80, 20));
    let mut all: Vec<u32> = train.iter().chain(&validation).map(|&x| x as u32).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<u32>>());
    assert_eq!(parts("", 1), (train.clone(), validation.clone()));
    assert_ne!(parts("", 2).1, validation);
    assert_eq!(parts("split_seed = 1", 2).1, validation);
    let ordered = parts("shuffle = false\nvalidation = 0.1", 2).1;
    assert_eq!(ordered, (90..100).map(|x| x as f32).collect::<Vec<_>>());
    // The smallest parts still hold a sample.
    assert_eq!(parts("validation = 0.001", 1).1.len(), 1);
    assert_eq!(parts("validation = 0.999", 1).0.len(), 1);
}

#[test]
fn missing_values_by_each_rule() {
    let text = "a,c,y\n1,u,1\nNA,u,2\n3,,3\n5,v,4\n";
    let with = |rule: &str| {
        let spec = format!("file = 'm.csv'\ntargets = 'y'\nvalidation = 0\n{rule}");
        load(&[("m.csv", text.as_bytes())], &spec)
    };
    says(
        with(""),
        &[
            "m.csv",
            "line 3, column \"a\"",
            "got \"NA\"",
            "missing = \"mean\" or \"drop\"",
        ],
    );
    let mean = with("missing = 'mean'").unwrap();
    // The mean of 1, 3, 5; u is more frequent than v.
    let expected = [1.0, 1.0, 0.0, 3.0, 1.0, 0.0, 3.0, 1.0, 0.0, 5.0, 0.0, 1.0];
    assert_eq!(mean.train.inputs(), expected);
    let drop = with("missing = 'drop'").unwrap();
    assert_eq!(drop.train.inputs(), [1.0, 1.0, 0.0, 5.0, 0.0, 1.0]);
    assert!(
        drop.notes.iter().any(|n| n.starts_with("2 rows")),
        "{:?}",
        drop.notes
    );
    // The rule holds for new data too, with the training part's mean.
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.csv");
    std::fs::write(&new, "c,a\nv,\nu,2\n").unwrap();
    let prepared = mean.preparation.read(&new).unwrap();
    assert_eq!(prepared.dataset.inputs(), [3.0, 0.0, 1.0, 2.0, 1.0, 0.0]);
    assert_eq!(prepared.rows, [0, 1]);
    let prepared = drop.preparation.read(&new).unwrap();
    assert_eq!((prepared.rows, prepared.total), (vec![1], 2));
    // Targets are never invented.
    let text = "a,y\n1,1\n2,\n";
    let spec = "file = 'm.csv'\ntargets = 'y'\nvalidation = 0\nmissing = 'mean'";
    let target = load(&[("m.csv", text.as_bytes())], spec);
    says(target, &["line 3, column \"y\"", "missing = \"drop\""]);
    let words =
        "file = 'm.csv'\ntargets = 'y'\nvalidation = 0\nmissing = 'drop'\nmissing_values = ['?']";
    let data = load(&[("m.csv", b"a,y\n1,1\n?,2\n")], words).unwrap();
    assert_eq!(data.train.len(), 1);
}

#[test]
fn data_that_is_not_finite_is_named_with_row_and_column() {
    let with = |text: &str| {
        load(
            &[("n.csv", text.as_bytes())],
            "file = 'n.csv'\ntargets = 'y'",
        )
    };
    says(
        with("a,y\n1,2\ninf,3\n"),
        &["n.csv", "line 3, column \"a\"", "\"inf\"", "finite"],
    );
    says(
        with("a,y\n1,2\n3,-Infinity\n"),
        &["line 3, column \"y\"", "finite"],
    );
    says(
        with("a,y\n1,2\nNaN,3\n"),
        &["line 3, column \"a\"", "\"NaN\""],
    );
    says(
        with("a,y\n1,2\n1e300,3\n"),
        &["line 3, column \"a\"", "1e300", "3.4e38"],
    );
    let array = Array::new(vec![2, 2], Values::F32(vec![0.0, 1.0, f32::NAN, 3.0])).unwrap();
    let y = Array::new(vec![2], Values::F64(vec![0.0, 1.0])).unwrap();
    let files = [("x.npy", npy::encode(&array)), ("y.npy", npy::encode(&y))];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (*n, b.as_slice())).collect();
    let spec = "file = 'x.npy'\ntargets_file = 'y.npy'";
    for normalise in ["none", "standard"] {
        let spec = format!("{spec}\nvalidation = 0\nnormalise = '{normalise}'");
        says(
            load(&files, &spec),
            &["x.npy", "sample 1, element 0", "NaN"],
        );
    }
}

#[test]
fn unknown_categories_and_classes_are_named() {
    let data = flowers("targets = 'kind'\nvalidation = 0\nunknown = 'error'").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.csv");
    let read = |text: &str| {
        std::fs::write(&new, text).unwrap();
        data.preparation.read(&new)
    };
    says(
        read("width,days,colour\n1,2,read\n"),
        &[
            "line 2, column \"colour\"",
            "got \"read\"",
            "\"blue\", \"red\", \"white\"",
            "did you mean \"red\"?",
        ],
    );
    // What can't be predicted is not measured, and predicted all the same.
    let tulip = read("width,days,colour,kind\n1,2,red,tulip\n").unwrap();
    assert!(tulip.known.is_none() && tulip.dataset.len() == 1);
    says(
        read("width,colour\n1,red\n"),
        &["column \"days\"", "there are \"width\", \"colour\""],
    );
    // Columns in another order, others among them, without targets.
    let ok = read("extra,days,colour,width\nx,7,red,1\n").unwrap();
    assert_eq!(ok.dataset.inputs(), [1.0, 0.0, 1.0, 0.0, 7.0]);
    assert_eq!(ok.dataset.targets(), &Targets::Unknown);
    // With targets, so that a measure can be taken.
    let ok = read("days,colour,width,kind\n7,red,1,rose\n").unwrap();
    let (known, rows) = ok.known.unwrap();
    assert_eq!((known.outputs(), rows), (3, vec![0]));
}

#[test]
fn numbers_as_classes_are_the_same_however_they_are_spelled() {
    let text = "x,y\n1,10\n2,2\n3,02\n4,10.0\n";
    let spec = "file = 'c.csv'\ntargets = 'y'\nvalidation = 0\ntask = 'classification'";
    let data = load(&[("c.csv", text.as_bytes())], spec).unwrap();
    assert_eq!(data.preparation.classes(), ["2", "10"]);
    let expected = Targets::Classes {
        count: 2,
        classes: vec![1, 0, 0, 1],
    };
    assert_eq!(data.train.targets(), &expected);
}

#[test]
fn a_preparation_survives_the_checkpoint_to_the_last_bit() {
    let text = "a,b,y\n0.1,x,0.3\n0.2,y,0.7\n0.7,x,1e-9\n1e-17,y,3\n";
    let spec = "file = 'p.csv'\ntargets = 'y'\nvalidation = 0\nnormalise = 'standard'\nnormalise_targets = 'standard'\nmissing = 'mean'";
    let data = load(&[("p.csv", text.as_bytes())], spec).unwrap();
    let again = Preparation::from_json(&data.preparation.to_json()).unwrap();
    assert_eq!(again, data.preparation);
    let Inputs::Columns(columns) = &again.inputs else {
        panic!("columns");
    };
    let Encoding::Number { scaling, .. } = &columns[0].encoding else {
        panic!("a number");
    };
    assert!((scaling.shift[0] - 0.25).abs() < 1e-16);
    let TargetRule::Values { scaling, .. } = &again.target else {
        panic!("values");
    };
    assert_eq!(scaling.shift.len(), 1);
    // Text that isn't one, and one that contradicts itself.
    says(Preparation::from_json("{}"), &["the data's preparation"]);
    let broken = data
        .preparation
        .to_json()
        .replace("\"sample_shape\":[3]", "\"sample_shape\":[4]");
    says(Preparation::from_json(&broken), &["[4]", "3 values"]);
}

#[test]
fn predictions_are_in_the_users_words_and_units() {
    let data = flowers("targets = 'kind'\nvalidation = 0").unwrap();
    let outputs = [0.0, 2.0, 0.0, 1.0, 1.0, 1.0];
    let columns = data.preparation.predictions(&outputs, 3).unwrap();
    let names: Vec<&str> = columns.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(
        names,
        [
            "predicted_kind",
            "probability_iris",
            "probability_lily",
            "probability_rose"
        ]
    );
    assert_eq!(columns[0].1, ["lily", "iris"]);
    let share: f32 = columns[1].1[1].parse().unwrap();
    assert_eq!(share, 1.0_f32 / 3.0);
    says(
        data.preparation.predictions(&outputs, 2),
        &["6 values, 2 a sample", "3 for every"],
    );
    // Two classes from one logit.
    let text = "x,y\n1,no\n2,yes\n";
    let spec = "file = 'b.csv'\ntargets = 'y'\nvalidation = 0";
    let data = load(&[("b.csv", text.as_bytes())], spec).unwrap();
    let columns = data.preparation.predictions(&[-1.0, 1000.0], 1).unwrap();
    assert_eq!(columns[0].1, ["no", "yes"]);
    assert_eq!(columns[2].1[1], "1");
    let share: f64 = columns[2].1[0].parse().unwrap();
    // σ(−1), an f32.
    assert!((share - 1.0 / (1.0 + 1_f64.exp())).abs() < 1e-7);
}

#[test]
fn weights_come_from_a_column_or_an_array() {
    let text = "x,y,w\n1,2,0.5\n3,4,0\n";
    let spec = "file = 'w.csv'\ntargets = 'y'\nweights = 'w'\nvalidation = 0";
    let data = load(&[("w.csv", text.as_bytes())], spec).unwrap();
    assert_eq!(data.train.weights(), Some(&[0.5, 0.0][..]));
    assert_eq!(data.train.sample_shape(), [1], "weights are no input");
    says(
        load(&[("w.csv", b"x,y,w\n1,2,-1\n")], spec),
        &["line 2, column \"w\"", "at least 0"],
    );
    // A mask on the outputs of a safetensors file.
    let x: Vec<u8> = [1.0_f32, 2.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let view = |shape: &[usize], dtype, data| {
        ::safetensors::tensor::TensorView::new(dtype, shape.to_vec(), data).unwrap()
    };
    let float = ::safetensors::Dtype::F32;
    let tensors = [
        ("x", view(&[1, 2], float, &x[..])),
        ("y", view(&[1, 2], float, &x[..])),
        (
            "mask",
            view(&[1, 2], ::safetensors::Dtype::BOOL, &[0, 1][..]),
        ),
    ];
    let bytes = ::safetensors::serialize(tensors, None).unwrap();
    let spec = "file = 'd.safetensors'\nweights = 'mask'\nvalidation = 0";
    let data = load(&[("d.safetensors", &bytes)], spec).unwrap();
    assert_eq!(data.train.weights(), Some(&[0.0, 1.0][..]));
    let spec = "file = 'd.safetensors'\ntargets = 'z'\nvalidation = 0";
    says(
        load(&[("d.safetensors", &bytes)], spec),
        &["tensor \"z\"", "\"mask\", \"x\", \"y\""],
    );
}

#[test]
fn arrays_of_images_with_labels() {
    let idx = |sizes: &[u32], data: &[u8]| {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        bytes.extend(sizes.iter().flat_map(|s| s.to_be_bytes()));
        bytes.extend(data);
        bytes
    };
    let images = idx(
        &[3, 2, 2],
        &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110],
    );
    let labels = idx(&[3], &[7, 3, 7]);
    let files: [(&str, &[u8]); 2] = [("i-idx3-ubyte", &images), ("l-idx1-ubyte", &labels)];
    let spec = "file = 'i-idx3-ubyte'\ntargets_file = 'l-idx1-ubyte'\nshape = [1, 2, 2]\nnormalise = 'minmax'\nvalidation = 0.34\nshuffle = false";
    let data = load(&files, spec).unwrap();
    assert_eq!(data.train.sample_shape(), [1, 2, 2]);
    assert_eq!(data.preparation.classes(), ["3", "7"]);
    // 0 to 70 in training, as a whole.
    assert_eq!(data.train.inputs()[7], 1.0);
    assert_eq!(
        data.validation.unwrap().inputs()[0],
        (80.0_f64 / 70.0) as f32
    );
    let short = idx(&[2], &[7, 3]);
    let files: [(&str, &[u8]); 2] = [("i-idx3-ubyte", &images), ("l-idx1-ubyte", &short)];
    says(
        load(&files, spec),
        &["l-idx1-ubyte", "2 samples", "needs 3"],
    );
    says(
        load(&files[..1], "file = 'i-idx3-ubyte'"),
        &["data.targets_file"],
    );
    let shape = spec.replace("[1, 2, 2]", "[1, 3, 3]");
    let files: [(&str, &[u8]); 2] = [("i-idx3-ubyte", &images), ("l-idx1-ubyte", &labels)];
    says(load(&files, &shape), &["[1, 3, 3]", "4 values"]);
}

#[test]
fn npy_columns_and_npy_images() {
    let table = Array::new(vec![2, 3], Values::F32(vec![0.1, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
    let spec = "file = 't.npy'\ntargets = '2'\nvalidation = 0";
    let data = load(&[("t.npy", &npy::encode(&table))], spec).unwrap();
    assert_eq!(data.train.inputs(), [0.1, 2.0, 4.0, 5.0]);
    // Channels are normalised each by itself.
    let images: Vec<f64> = (0..16).map(f64::from).collect();
    let images = Array::new(vec![2, 2, 2, 2], Values::F64(images)).unwrap();
    let y = Array::new(vec![2, 2], Values::F64(vec![1.0, 2.0, 3.0, 4.0])).unwrap();
    let files = [("x.npy", npy::encode(&images)), ("y.npy", npy::encode(&y))];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (*n, b.as_slice())).collect();
    let spec = "file = 'x.npy'\ntargets_file = 'y.npy'\nvalidation = 0\nnormalise = 'minmax'";
    let data = load(&files, spec).unwrap();
    let Inputs::Array { scaling, .. } = &data.preparation.inputs else {
        panic!("an array");
    };
    // Channel 0 holds 0–3 and 8–11, channel 1 holds 4–7 and 12–15.
    assert_eq!(
        (&scaling.shift[..], &scaling.scale[..]),
        (&[0.0, 4.0][..], &[11.0, 11.0][..])
    );
    assert_eq!(data.train.inputs()[4], 0.0);
    assert_eq!(data.train.outputs(), 2);
}

#[test]
fn a_validation_file_is_prepared_by_what_training_taught() {
    let files: [(&str, &[u8]); 2] = [
        ("a.csv", b"x,k,y\n0,u,1\n10,v,2\n"),
        ("b.csv", b"y,x,k\n3,20,v\n"),
    ];
    let spec = "file = 'a.csv'\nvalidation_file = 'b.csv'\ntargets = 'y'\nnormalise = 'minmax'";
    let data = load(&files, spec).unwrap();
    assert_eq!(data.train.len(), 2);
    assert_eq!(data.validation.unwrap().inputs(), [2.0, 0.0, 1.0]);
    let files: [(&str, &[u8]); 2] = [files[0], ("b.csv", b"y,x,k\n3,20,w\n")];
    let notes = load(&files, spec).unwrap().notes;
    let said = |n: &String| n.contains("1 of 1 rows have a \"k\"") && n.contains("\"w\"");
    assert!(notes.iter().any(said), "{notes:?}");
    says(
        load(&files, &format!("{spec}\nunknown = 'error'")),
        &["b.csv", "line 2, column \"k\"", "\"w\""],
    );
}

#[test]
fn slips_in_tables_are_named_with_advice() {
    let with = |text: &str, spec: &str| {
        load(
            &[("s.csv", text.as_bytes())],
            &format!("file = 's.csv'\n{spec}"),
        )
    };
    let y = "targets = 'y'";
    says(
        with("a,y\n1,2\n12a,3\n", y),
        &["line 3, column \"a\"", "\"12a\"", "`categories`"],
    );
    says(
        with("a;y\n1,5;2\n2,5;3\n", y),
        &["line 2, column \"a\"", "decimal = \",\""],
    );
    says(
        with("a;y\n1,5;2\n2;3\n", y),
        &["line 2, column \"a\"", "decimal = \",\""],
    );
    says(with("a,y\n,2\n,3\n", y), &["column \"a\"", "`ignore`"]);
    says(with("a,y\n1,2\n", ""), &["data.targets", "\"a\", \"y\""]);
    says(
        with("a,y\n1,2\n", "targets = 'Y '"),
        &["column \"Y \"", "\"a\", \"y\""],
    );
    says(
        with("a,y\n1,2\n", "targets = 'y'\ninputs = ['y']"),
        &["data.inputs", "a target"],
    );
    says(
        with("a,y\n1,2\n", "targets = ['y', 'y']"),
        &["data.targets", "twice"],
    );
    says(
        with("a,y\n1,2\n", "targets = 'y'\nignore = 'a'"),
        &["data.inputs", "at least one"],
    );
    says(
        with("a,y\n1,2\n", "targets = 'y'\ncategories = 'y'"),
        &["data.categories"],
    );
    says(
        with("a,y\n1,2\n", y),
        &["data.validation", "at least 2 samples"],
    );
    says(with("a,y\n1,x\n2,x\n", y), &["the classes", "1 different"]);
    says(
        with("a,y\n1,x\n2,z\n", "targets = 'y'\ntask = 'regression'"),
        &["column \"y\"", "\"x\""],
    );
    says(
        with(
            "a,y\n1,x\n2,z\n",
            "targets = 'y'\nclasses = ['x', 'w']\nvalidation = 0",
        ),
        &["line 3, column \"y\"", "\"z\""],
    );
    let many: String = (0..300).map(|i| format!("name{i},1\n")).collect();
    says(
        with(&format!("a,y\n{many}"), y),
        &["300 categories", "max_categories"],
    );
    says(
        with("a,y\n,1\n2,\n", "targets = 'y'\nmissing = 'drop'"),
        &["all 2 rows"],
    );
    let nameless = with(",a,y\n0,1,2\n1,5,3\n", "targets = 'y'\nvalidation = 0").unwrap();
    assert_eq!(nameless.preparation.input_names(), ["a"]);
}

#[test]
fn specs_that_contradict_themselves_are_named() {
    let check = |text: &str| toml::from_str::<DataSpec>(text).unwrap().check();
    says(
        check("file = 'a'\ngenerate = { name = 'digits' }"),
        &["`file` and `generate`"],
    );
    says(check("validation = 1.0"), &["data.validation", "below 1"]);
    says(check("validation = nan"), &["data.validation"]);
    says(
        check("file = 'a'\nvalidation = 0.1\nvalidation_file = 'b'"),
        &["one of the two"],
    );
    says(check("decimal = 'x'"), &["decimal"]);
    says(load(&[], ""), &["`file` or `generate`"]);
    says(
        load(&[("a.xyz", b"")], "file = 'a.xyz'"),
        &["a.xyz", "ending", ".csv", "`format`"],
    );
    let unknown = toml::from_str::<DataSpec>("files = 'a'")
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("files"), "{unknown}");
    // What is written back into a run's folder reads as the same.
    let spec: DataSpec = toml::from_str(
        "generate = { name = 'formula', formula = 'x*y', inputs = { x = [-1, 1], y = [0, 2.5] } }\nseparator = ';'\nnormalise = 'standard'",
    )
    .unwrap();
    let text = toml::to_string(&spec).unwrap();
    assert_eq!(toml::from_str::<DataSpec>(&text).unwrap(), spec);
}

#[test]
fn generated_data_is_what_its_formula_says() {
    let data = |generate: &str| load(&[], &format!("validation = 0\ngenerate = {generate}"));
    let values = |data: &crate::data::Data| match data.train.targets() {
        Targets::Values { values, .. } => values.clone(),
        other => panic!("{other:?}"),
    };
    let d = data("{ name = 'formula', formula = 'x*y + sin(x)', inputs = { x = [-2, 2], y = [0, 1] }, samples = 50 }").unwrap();
    assert_eq!(d.preparation.input_names(), ["x", "y"]);
    for (row, f) in d.train.inputs().chunks_exact(2).zip(values(&d)) {
        let (x, y) = (f64::from(row[0]), f64::from(row[1]));
        assert!((-2.0..2.0).contains(&x) && (0.0..1.0).contains(&y));
        // Inputs and target were rounded to f32; the slopes are at most 2 and 2.
        assert!((f64::from(f) - (x * y + x.sin())).abs() < 1e-6);
    }
    let d = data("{ name = 'friedman', samples = 30 }").unwrap();
    for (x, y) in d.train.inputs().chunks_exact(10).zip(values(&d)) {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let expected = 10.0 * (std::f64::consts::PI * x[0] * x[1]).sin()
            + 20.0 * (x[2] - 0.5).powi(2)
            + 10.0 * x[3]
            + 5.0 * x[4];
        // Slopes below 32, inputs rounded by at most 3e-8, a target below 32 by 1e-6.
        assert!((f64::from(y) - expected).abs() < 1e-5);
    }
    let d = data("{ name = 'two_moons', samples = 100, noise = 0 }").unwrap();
    assert_eq!(d.preparation.classes(), ["lower", "upper"]);
    let Targets::Classes { classes, .. } = d.train.targets() else {
        panic!("classes");
    };
    for (p, class) in d.train.inputs().chunks_exact(2).zip(classes) {
        let centre = if *class == 1 { [0.0, 0.0] } else { [1.0, 0.5] };
        let radius = ((p[0] - centre[0]).powi(2) + (p[1] - centre[1]).powi(2)).sqrt();
        assert!((radius - 1.0).abs() < 1e-6);
    }
    let d = data("{ name = 'spirals', samples = 90, arms = 3 }").unwrap();
    assert_eq!(d.preparation.classes(), ["a", "b", "c"]);
    assert_eq!(
        data("{ name = 'spirals', arms = 3 }").unwrap().train.len(),
        1000
    );
    // The data has its own seed.
    let moons = |seed: u64| data(&format!("{{ name = 'two_moons', seed = {seed} }}")).unwrap();
    assert_eq!(moons(1).train, moons(1).train);
    assert_ne!(moons(1).train, moons(2).train);
    says(data("{ name = 'spirals', arms = 1 }"), &["arms", "2 to 26"]);
    says(
        data("{ name = 'two_moons', samples = 0 }"),
        &["samples", "got 0"],
    );
    says(data("{ name = 'two_moons', noise = -1 }"), &["noise"]);
    says(
        data("{ name = 'formula', formula = '1/x', inputs = { x = [0, 0] } }"),
        &["1/x", "inf", "finite"],
    );
}

#[test]
fn the_built_in_digits_are_those_of_scikit_learn() {
    let data = load(&[], "generate = { name = 'digits' }\nvalidation = 0").unwrap();
    assert_eq!(data.train.len(), 1797);
    assert_eq!(data.train.sample_shape(), [8, 8]);
    assert_eq!(data.preparation.classes().len(), 10);
    // scikit-learn's load_digits().data[0][:8], and the sum of all pixels of that file.
    assert_eq!(
        data.train.inputs()[..8],
        [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0]
    );
    let sum: f64 = data.train.inputs().iter().map(|&x| f64::from(x)).sum();
    assert_eq!(sum, 561718.0);
    let Targets::Classes { classes, .. } = data.train.targets() else {
        panic!("classes");
    };
    assert_eq!(classes[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn unseen_categories_are_none_of_the_known_ones_and_are_counted() {
    let data = flowers("targets = 'kind'\nvalidation = 0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.csv");
    let text = "width,days,colour,kind\n1,2,teal,rose\n1,2,red,tulip\n1,2,mauve,\n";
    std::fs::write(&new, text).unwrap();
    let read = data.preparation.read(&new).unwrap();
    let width = read.dataset.sample_len();
    let colours = |row: usize| {
        let names = data.preparation.input_names();
        let sample = &read.dataset.inputs()[row * width..(row + 1) * width];
        let own = names
            .iter()
            .zip(sample)
            .filter(|(n, _)| n.starts_with("colour"));
        own.map(|(_, &v)| v).sum::<f32>()
    };
    assert_eq!([0, 1, 2].map(colours), [0.0, 1.0, 0.0]);
    assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
    for part in ["2 of 3 rows", "\"colour\"", "\"teal\" (line 2)"] {
        assert!(read.notes[0].contains(part), "{}", read.notes[0]);
    }
    // Of the three, one has a class that can be measured.
    assert_eq!(read.known.unwrap().1, [0]);
}

#[test]
fn dates_become_days_and_the_cycles_that_they_go_through() {
    let mut text = String::from("when,y\n");
    for day in 0..800 {
        let (year, of_year) = (2020 + day / 366, day % 366);
        let (month, date) = (1 + of_year / 31, 1 + of_year % 28);
        text += &format!("{year}-{month:02}-{date:02} {:02}:00,{day}\n", day % 24);
    }
    let spec = "file = 'f.csv'\ntargets = 'y'\nvalidation = 0";
    let data = load(&[("f.csv", text.as_bytes())], spec).unwrap();
    let names = data.preparation.input_names();
    assert_eq!(names.len(), 7, "{names:?}");
    assert_eq!(
        (names[0].as_str(), names[6].as_str()),
        ("when", "cos(when of year)")
    );
    let first = &data.train.inputs()[..7];
    // 2020-01-01 00:00: the day begins; days since 1970 are a multiple of 7 after 3 days.
    assert_eq!(first[1..3], [0.0, 1.0]);
    let turn = std::f64::consts::TAU * (18_262.0_f64 / 7.0).fract();
    assert!((f64::from(first[3]) - turn.sin()).abs() < 1e-6);
    // A week of dates goes through neither a year nor more than one week.
    let short: String = (1..=7).map(|d| format!("2024-05-{d:02},{d}\n")).collect();
    let short = format!("when,y\n{short}");
    let data = load(&[("f.csv", short.as_bytes())], spec).unwrap();
    assert_eq!(data.preparation.input_names(), ["when"]);
    // New data in another form is an error that names the cell.
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.csv");
    std::fs::write(&new, "when\n5/31/2024\n").unwrap();
    says(
        data.preparation.read(&new),
        &[
            "line 2, column \"when\"",
            "a date as in training (year, month, day)",
        ],
    );
}

/// The reported rows neither teach nor choose: R² was .532 by the report and .341 on rows kept aside.
#[test]
fn a_test_part_is_kept_aside_and_is_the_same_for_every_share_of_validation() {
    let rows: String = (0..100).map(|i| format!("{i},{}\n", i % 7)).collect();
    let text = format!("x,y\n{rows}");
    let parts = |spec: &str| {
        let spec = format!("file = 'f.csv'\ntargets = 'y'\n{spec}");
        let data = load(&[("f.csv", text.as_bytes())], &spec).unwrap();
        let of =
            |part: Option<&crate::data::Dataset>| part.map_or(Vec::new(), |p| p.inputs().to_vec());
        [
            of(Some(&data.train)),
            of(data.validation.as_ref()),
            of(data.test.as_ref()),
        ]
    };
    let [train, validation, test] = parts("test = 0.2");
    assert_eq!((train.len(), validation.len(), test.len()), (64, 16, 20));
    let mut all = [train, validation, test.clone()].concat();
    all.sort_by(f32::total_cmp);
    assert_eq!(all, (0..100).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(parts("test = 0.2\nvalidation = 0.5")[2], test);
    assert!(parts("")[2].is_empty());
    // By time and by group, whose columns are no inputs.
    let [train, validation, test] = parts("test = 0.2\ntime = 'x'\ninputs = 'x'");
    let ends = |v: &[f32]| (v[0], v[v.len() - 1]);
    assert_eq!(ends(&train).1 + 1.0, ends(&validation).0);
    assert_eq!(ends(&test), (80.0, 99.0));
    let both = load(
        &[("f.csv", text.as_bytes())],
        "file = 'f.csv'\ntargets = 'y'\ntime = 'x'\ngroup = 'x'",
    );
    says(both, &["group and time", "one of them"]);
    let bad = load(
        &[("f.csv", text.as_bytes())],
        "file = 'f.csv'\ntargets = 'y'\ntest = 1.5",
    );
    says(bad, &["data.test", "1.5"]);
}
