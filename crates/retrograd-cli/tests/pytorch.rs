//! Weights exchanged with PyTorch, in both directions.
//!
//! Needs a Python that can import `torch` and `safetensors`: `python3`, or the one that the
//! environment variable `RETROGRAD_PYTHON` names (`tests/python-environment` makes one).

mod common;

use std::path::Path;
use std::process::Command;

use common::{python, run};
use retrograd::train::TensorFile;

fn script(python: &str, folder: &Path, text: &str) -> String {
    let output = Command::new(python)
        .current_dir(folder)
        .args(["-c", text])
        .output()
        .expect("python starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python failed:\n{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const NETWORK: &str = "import torch, torch.nn as nn
from safetensors.torch import load_file, save_file
torch.manual_seed(3)
net = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3),
    nn.GELU(), nn.Flatten(), nn.Linear(48, 3))
names = {f'{i + 1}.': f'{i}.' for i in range(5)}
";

/// The same network, whose input has its shape already: PyTorch's numbers are one higher.
fn experiment(folder: &Path, train: &str) {
    let columns: Vec<String> = (0..16).map(|i| format!("p{i}")).collect();
    let mut table = columns.join(",") + ",kind\n";
    for row in 0..90 {
        let values = (0..16).map(|i| ((row * 13 + i * 7 * (row % 3 + 1)) % 19) as f64 / 8.0 - 1.0);
        let values: Vec<String> = values.map(|v| v.to_string()).collect();
        table += &format!("{},{}\n", values.join(","), ["a", "b", "c"][row % 3]);
    }
    std::fs::write(folder.join("data.csv"), table).unwrap();
    let text = format!(
        "name = \"exchange\"\n[model]\nfamily = \"network\"\n\
         layers = [{{ kind = \"conv2d\", out = 3, kernel = 3, padding = 1 }}, \
         {{ kind = \"batch_norm2d\" }}, {{ kind = \"gelu\" }}, {{ kind = \"flatten\" }}, \
         {{ kind = \"dense\", out = 3 }}]\n\
         [data]\nfile = \"data.csv\"\ntargets = \"kind\"\nshape = [1, 4, 4]\n\
         [train]\n{train}\n"
    );
    std::fs::write(folder.join("test.toml"), text).unwrap();
}

#[test]
fn our_weights_load_in_pytorch_and_predict_the_same() {
    let python = python("torch, safetensors.torch");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "epochs = 10\nbatch = 24\noptimizer = { kind = \"adam\", lr = 0.01 }",
    );
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "ours"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = run(folder, &["run", "ours", "data.csv", "--out", "said.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let text = format!(
        "{NETWORK}
import csv
state = load_file('ours/model.safetensors')
state = {{str(int(n[0]) + 1) + n[1:]: t for n, t in state.items()}}
net.load_state_dict(state)
net.eval()
rows = [[float(v) for v in list(r.values())[:16]] for r in csv.DictReader(open('data.csv'))]
p = torch.softmax(net(torch.tensor(rows)), 1)
said = [[float(v) for v in list(r.values())[1:]] for r in csv.DictReader(open('said.csv'))]
print(float((p - torch.tensor(said)).abs().max()))"
    );
    let apart: f64 = script(&python, folder, &text).trim().parse().unwrap();
    // Two f32 evaluations of three small layers, values up to some tens before the softmax.
    assert!(apart < 1e-5, "probabilities {apart} apart");
}

#[test]
fn pytorchs_weights_are_the_initial_ones() {
    let python = python("torch, safetensors.torch");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = format!(
        "{NETWORK}
state = {{str(int(n[0]) - 1) + n[1:]: t for n, t in net.state_dict().items()}}
save_file(state, 'torch.safetensors')
save_file({{n: t.double() if t.is_floating_point() else t for n, t in state.items()}}, 'double.safetensors')"
    );
    script(&python, folder, &text);
    let theirs = TensorFile::read(&folder.join("torch.safetensors")).unwrap();
    for file in ["torch.safetensors", "double.safetensors"] {
        experiment(
            folder,
            &format!(
                "epochs = 1\nbatch = 24\nweights = \"{file}\"\nfreeze = [\"0.*\", \"1.*\", \"4.*\"]\n\
                 optimizer = {{ kind = \"sgd\", lr = 0.0 }}"
            ),
        );
        let (code, _, stderr) = run(
            folder,
            &[
                "train",
                "test.toml",
                "--out",
                file.trim_end_matches(".safetensors"),
            ],
        );
        assert_eq!(code, 0, "{stderr}");
        let run = folder.join(file.trim_end_matches(".safetensors"));
        let ours = TensorFile::read(&run.join("model.safetensors")).unwrap();
        for name in [
            "0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias",
        ] {
            assert_eq!(ours.get(name), theirs.get(name), "{name} of {file}");
        }
    }
}
