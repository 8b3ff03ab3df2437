//! ONNX Runtime says what our f64 reference says, within what rounding to f32 explains.
//!
//! Needs a Python with `onnxruntime` and `numpy`: `python3`, or the one that the environment variable
//! `RETROGRAD_PYTHON` names (`tests/python-environment` makes one).

mod prepared;

use std::path::Path;
use std::process::Command;

use super::network;
use crate::layer::small_models;
use crate::network::{LayerSpec, Network, NetworkSpec};
use crate::verify::builtin::network::case;
use crate::verify::precision::SamplePlan;
use crate::verify::{Expectation, Granted, Subject, Worst, compare};
use crate::{Model, Pass};

/// Runs every model of a folder on the values beside it.
const RUN: &str = "
import sys, pathlib, numpy, onnxruntime
for path in sorted(pathlib.Path(sys.argv[1]).glob('*.onnx')):
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    x = session.get_inputs()[0]
    values = numpy.fromfile(path.with_suffix('.in'), '<f4').reshape([-1] + x.shape[1:])
    y, = session.run(None, {x.name: values})
    assert list(y.shape[1:]) == session.get_outputs()[0].shape[1:], (path, y.shape)
    y.astype('<f4').tofile(path.with_suffix('.out'))
";

fn python(script: &str, folder: &Path) {
    let python = std::env::var("RETROGRAD_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let output = Command::new(&python)
        .args(["-c", script])
        .arg(folder)
        .output()
        .expect("python starts");
    assert!(
        output.status.success(),
        "{python} (RETROGRAD_PYTHON may name another; tests/python-environment makes one):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&v| (v as f32).to_le_bytes())
        .collect()
}

/// How far ONNX Runtime's outputs are from the reference's, in units of what rounding explains.
fn distance(subject: &Subject<'_, Network>, expected: &Expectation, said: &Path) -> Worst {
    let exact = &expected.exact.output;
    let bounds = expected.bounds(exact, |run| &run.output);
    let said: Vec<f64> = std::fs::read(said)
        .unwrap()
        .chunks_exact(4)
        .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
        .collect();
    assert_eq!(said.len(), exact.len(), "{}", subject.name);
    compare(&said, exact, |i| bounds.at(i))
}

/// Every layer kind's small networks; and with their largest parameter moved by a hundredth, which
/// the comparison must notice.
#[test]
fn every_layer_with_a_form_in_onnx_computes_what_the_reference_does() {
    let [right, moved] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |i: usize, ending: &str| format!("{i:03}.{ending}");
    let small = small_models();
    let cases: Vec<_> = small.iter().map(|&s| (s.0, case(s).unwrap())).collect();
    let mut kinds = std::collections::BTreeSet::new();
    for (i, (_, (case, _))) in cases.iter().enumerate() {
        let mut params: Vec<f32> = case.params.iter().map(|&p| p as f32).collect();
        for folder in [right.path(), moved.path()] {
            let file = network(&case.model, &params).unwrap();
            std::fs::write(folder.join(at(i, "onnx")), file).unwrap();
            std::fs::write(folder.join(at(i, "in")), bytes(&case.input)).unwrap();
            let largest = params.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs()));
            if let Some(largest) = largest {
                *largest *= 1.01;
            }
        }
        kinds.extend(case.model.places.iter().map(|p| p.kind));
    }
    // Every kind that a network may have; the others look at a graph.
    assert!(kinds.len() >= 21, "{kinds:?}");
    python(RUN, right.path());
    python(RUN, moved.path());
    let mut problems = Vec::new();
    let mut noticed = 0;
    for (i, (name, (case, loss))) in cases.iter().enumerate() {
        let subject = Subject {
            name: (*name).to_string(),
            model: &case.model,
            params: case.params.clone(),
            input: case.input.clone(),
            target: case.target.clone(),
            loss: *loss,
            pass: Pass::inference(),
        };
        let plan = SamplePlan::default();
        let expected = Expectation::new(&subject, &Granted::CPU, &[], 0, &plan);
        let worst = distance(&subject, &expected, &right.path().join(at(i, "out")));
        if worst.ratio > 1.0 {
            problems.push(format!("{name}: {worst:?}"));
        }
        let worst = distance(&subject, &expected, &moved.path().join(at(i, "out")));
        noticed += usize::from(worst.ratio > 1.0 || case.params.is_empty());
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(noticed, cases.len());
}

#[test]
fn weights_of_another_network_are_refused() {
    let layers = r#"[{"kind":"dense","out":2}]"#;
    let layers: Vec<LayerSpec> = serde_json::from_str(layers).unwrap();
    let dense = Network::new(&NetworkSpec::new(&[3], layers)).unwrap();
    let error = network(&dense, &[0.0; 3]).unwrap_err().to_string();
    assert!(error.contains("parameters to export"), "{error}");
}

#[test]
fn the_file_says_what_it_is() {
    let layers: Vec<LayerSpec> = serde_json::from_str(r#"[{"kind":"relu"}]"#).unwrap();
    let relu = Network::new(&NetworkSpec::new(&[3], layers)).unwrap();
    let file = network(&relu, &relu.init(0)).unwrap();
    // ir_version = 9, producer_name = "retrograd", as protocol buffers write them.
    assert_eq!(file[..2], [0x08, 9]);
    assert_eq!(&file[2..13], b"\x12\x09retrograd");
}
