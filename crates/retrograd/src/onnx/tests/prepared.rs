//! Tables, arrays and images go in as users have them, and predictions come out in their units.

use super::python;
use crate::data::{Data, DataSpec};
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::onnx::prepared;
use crate::verify::precision::SamplePlan;
use crate::verify::{Expectation, Granted, Subject};
use crate::{Loss, Model, Pass, Target};

/// Numbers on both sides of two categories, a missing number, a missing category, and dates.
const TABLE: &str = "width,colour,days,sold,price,kind
1.5,red,10,2024-01-05,3.25,rose
2.5,blue,20,2024-03-17,5.5,iris
3.25,red,,2024-06-30,1.125,rose
4.75,white,40,2024-09-01,9.5,lily
5.5,,50,2024-11-11,7.75,iris
6.25,red,60,2025-02-28,2.5,lily
";

/// Reads the table as a user of the model would, and keeps every output.
const RUN: &str = "
import sys, csv, json, pathlib, datetime, numpy, onnxruntime
folder = pathlib.Path(sys.argv[1])
session = onnxruntime.InferenceSession(str(folder / 'model.onnx'), providers=['CPUExecutionProvider'])
rows = list(csv.DictReader(open(folder / 'table.csv')))
notes = session.get_modelmeta().custom_metadata_map
feed = {}
for given in session.get_inputs():
    if given.name == 'numbers':
        names = json.loads(notes['numbers'])
        feed['numbers'] = numpy.array([[float(r[n] or 'nan') for n in names] for r in rows], 'float32')
    elif given.type == 'tensor(string)':
        feed[given.name] = numpy.array([[r[given.name]] for r in rows], object)
    else:
        start = datetime.date(1970, 1, 1)
        days = lambda text: (datetime.date.fromisoformat(text) - start).days
        feed[given.name] = numpy.array([[days(r[given.name])] for r in rows], 'float64')
for output, values in zip(session.get_outputs(), session.run(None, feed)):
    if output.type == 'tensor(string)':
        (folder / output.name).write_text('\\n'.join(values))
    else:
        values.astype('<f4').tofile(folder / output.name)
";

struct Ran {
    folder: tempfile::TempDir,
    data: Data,
    /// The reference's outputs, and what rounding explains.
    exact: Vec<f64>,
    bounds: Vec<f64>,
    width: usize,
}

impl Ran {
    fn said(&self, name: &str) -> Vec<f64> {
        let bytes = std::fs::read(self.folder.path().join(name)).unwrap();
        let (values, _) = bytes.as_chunks::<4>();
        values
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect()
    }
}

/// A network with initial weights on the table, and what ONNX Runtime says of every row.
fn ran(spec: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.csv");
    std::fs::write(&table, TABLE).unwrap();
    let spec = format!(
        "file = 'table.csv'\nvalidation = 0\nmissing = 'mean'\nnormalise = 'standard'\n{spec}"
    );
    let spec: DataSpec = toml::from_str(&spec).unwrap();
    let data = spec.load(folder.path(), 0).unwrap();
    let width = data.preparation.outputs();
    let layers = vec![
        LayerSpec::dense(5),
        LayerSpec::gelu(),
        LayerSpec::dense(width),
    ];
    let inputs = data.preparation.input_names().len();
    let network = Network::new(&NetworkSpec::new(&[inputs], layers)).unwrap();
    let params = network.init(5);
    let file = prepared(&network, &params, &data.preparation).unwrap();
    std::fs::write(folder.path().join("model.onnx"), file).unwrap();
    python(RUN, folder.path());
    let rows = data.preparation.read(&table).unwrap().dataset;
    let subject = Subject {
        name: "table".into(),
        model: &network,
        params: crate::scalar::cast(&params),
        input: crate::scalar::cast(rows.inputs()),
        target: Target::values(vec![0.0; rows.len() * width]),
        loss: Loss::Mse,
        pass: Pass::inference(),
    };
    let plan = SamplePlan::default();
    let expected = Expectation::new(&subject, &Granted::CPU, &[], 0, &plan);
    let exact = expected.exact.output.clone();
    let bounds = expected.bounds(&exact, |run| &run.output);
    let bounds = bounds.values().to_vec();
    Ran {
        folder,
        data,
        exact,
        bounds,
        width,
    }
}

/// Half a unit in the last place of f32, relative.
const HALF_ULP: f64 = 1.0 / 16_777_216.0;

#[test]
fn a_table_goes_in_and_values_come_out_in_their_units() {
    let ran = ran("targets = 'price'\nignore = 'kind'\nnormalise_targets = 'standard'");
    let said = ran.said("values");
    assert_eq!(said.len(), 6);
    let crate::data::TargetRule::Values { scaling, .. } = &ran.data.preparation.target else {
        panic!("numbers are predicted");
    };
    for (i, said) in said.iter().enumerate() {
        let right = scaling.undo(0, 1, ran.exact[i]);
        // The network's own rounding in the target's units, and that of the result.
        let bound = scaling.scale[0] * ran.bounds[i] + HALF_ULP * right.abs();
        assert!(
            (said - right).abs() <= bound,
            "row {i}: {said}, not {right} ± {bound:e}"
        );
    }
}

#[test]
fn a_table_goes_in_and_classes_come_out_in_their_words() {
    let ran = ran("targets = 'kind'\nignore = 'price'");
    let said = ran.said("probabilities");
    let classes = std::fs::read_to_string(ran.folder.path().join("class")).unwrap();
    let names = ran.data.preparation.classes();
    for (row, class) in classes.lines().enumerate() {
        let at = row * ran.width..(row + 1) * ran.width;
        let logits = &ran.exact[at.clone()];
        let off = ran.bounds[at.clone()]
            .iter()
            .fold(0.0_f64, |a, &b| a.max(b));
        let sum: f64 = logits.iter().map(|&z| crate::math::exp(z)).sum();
        for (c, said) in said[at].iter().enumerate() {
            let right = crate::math::exp(logits[c]) / sum;
            // |∂p_c/∂z| summed over the logits is 2·p_c·(1 − p_c); exp may be off by 2 ulp in both
            // of its places, and there are as many sums as classes and one quotient.
            let bound = 2.0 * right * (1.0 - right) * off
                + (2.0 * 8.0 + ran.width as f64 + 1.0) * HALF_ULP * right;
            assert!(
                (said - right).abs() <= bound,
                "row {row}: {said}, not {right} ± {bound:e}"
            );
        }
        let best = (0..ran.width).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        assert_eq!(class, names[best.unwrap()], "row {row}");
    }
}
