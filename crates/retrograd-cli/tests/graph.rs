//! `retrograd run` and `export` for graph networks: what they write, and what they refuse.

mod common;

use std::path::Path;

use common::run;
use retrograd::train::TensorFile;

/// The lines of a CSV file, cut into cells.
fn table(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let cells = |line: &str| line.split(',').map(ToString::to_string).collect();
    text.lines().map(cells).collect()
}

fn train(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
    let (code, _, stderr) = run(folder, &["train", &format!("{name}.toml"), "--out", name]);
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn predictions_of_nodes_say_what_training_measured_and_weights_have_pytorchs_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, _, stderr) = run(folder, &["train", "karate", "--out", "club"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = run(folder, &["run", "club", "--out", "club.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let rows = table(&folder.join("club.csv"));
    assert_eq!(rows.len(), 35);
    assert_eq!(rows[0][..2], ["node", "predicted"]);
    let place = |name: &str| rows[0].iter().position(|c| c == name).unwrap();
    let (predicted, class, split) = (place("predicted"), place("class"), place("split"));
    let tested: Vec<_> = rows[1..].iter().filter(|r| r[split] == "test").collect();
    let right = tested.iter().filter(|r| r[predicted] == r[class]).count();
    let accuracy = right as f64 / tested.len() as f64;
    assert!(accuracy > 0.9);
    assert!(
        stdout.contains(&format!("{:20} {accuracy}", "test_accuracy")),
        "{stdout}"
    );
    for row in &rows[1..] {
        let chances = row[2..class].iter().map(|p| p.parse::<f64>().unwrap());
        assert!((chances.sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
    }
    let (code, _, stderr) = run(folder, &["run", "club", "club.csv"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("built in"), "{stderr}");

    let (code, _, stderr) = run(folder, &["export", "club", "--out", "club.safetensors"]);
    assert_eq!(code, 0, "{stderr}");
    let file = TensorFile::read(&folder.join("club.safetensors")).unwrap();
    let weight = file.get("0.lin.weight").unwrap();
    assert_eq!(weight.shape, [16, 34]);
    assert_eq!(file.get("4.bias").unwrap().shape, [2]);
    assert_eq!(file.metadata["format"], "pt");
}

#[test]
fn a_graph_of_ones_own_is_predicted_with_and_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Two rings of ten nodes; the features tell the rings apart.
    let (mut edges, mut features, mut labels) = (
        String::from("source,target\n"),
        String::from("a,b\n"),
        String::from("class\n"),
    );
    for i in 0..20 {
        let ring = i / 10;
        edges += &format!("{i},{}\n", 10 * ring + (i + 1) % 10);
        features += &format!("{},{}\n", 1 - ring, ring);
        labels += &format!("{ring}\n");
    }
    for (name, text) in [("e.csv", edges), ("x.csv", features), ("y.csv", labels)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    train(
        folder,
        "rings",
        "name = \"rings\"\n[model]\nfamily = \"graph\"\nfeatures = 2\n\
         layers = [{ kind = \"gcn\", out = 2 }]\n[data]\nkind = \"edge_list\"\n\
         edges = \"e.csv\"\nfeatures = \"x.csv\"\nlabels = \"y.csv\"\nundirected = true\n\
         [train]\nepochs = 60\noptimizer = { kind = \"adam\", lr = 0.1 }\n",
    );
    let (code, stdout, stderr) = run(folder, &["run", "rings"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("test_accuracy        1\n"), "{stdout}");
    let with_labels = table(&folder.join("predictions.csv"));
    let (code, stdout, stderr) = run(folder, &["run", "rings", "e.csv", "x.csv", "--force"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains("accuracy"), "{stdout}");
    let without = table(&folder.join("predictions.csv"));
    for (a, b) in with_labels.iter().zip(&without) {
        assert_eq!(a[..b.len()], b[..]);
    }
    std::fs::write(folder.join("short.csv"), "a,b\n1,0\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "rings", "e.csv", "short.csv", "--force"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("e.csv") && stderr.contains("a node below 1"),
        "{stderr}"
    );
}

#[test]
fn links_and_masked_characters_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    train(
        folder,
        "links",
        "name = \"links\"\n[model]\nfamily = \"graph\"\nfeatures = 34\n\
         layers = [{ kind = \"gcn\", out = 8 }, { kind = \"pair_dot\" }]\n\
         [data]\nkind = \"karate\"\npredict = \"links\"\n\
         [train]\nepochs = 20\noptimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    let (code, stdout, stderr) = run(folder, &["run", "links"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("test_auc"), "{stdout}");
    let rows = table(&folder.join("predictions.csv"));
    assert_eq!(rows[0], ["source", "target", "p(link)", "link"]);
    std::fs::write(folder.join("pairs.csv"), "a,b\n0,33\n5,6\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "links", "pairs.csv", "--force"]);
    assert_eq!(code, 0, "{stderr}");
    let rows = table(&folder.join("predictions.csv"));
    assert_eq!(
        (rows.len(), &rows[1][..2]),
        (3, &["0".to_string(), "33".into()][..])
    );
    std::fs::write(folder.join("pairs.csv"), "a,b\n0,34\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "links", "pairs.csv", "--force"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("pair 0"), "{stderr}");

    train(
        folder,
        "text",
        "name = \"text\"\n[model]\nfamily = \"graph\"\n\
         layers = [{ kind = \"embedding\", vocabulary = 29, out = 8 }, \
         { kind = \"message_passing\", out = 8 }, { kind = \"dense\", out = 28 }]\n\
         [data]\nkind = \"text\"\ncharacters = 20\nsamples = 16\n\
         [train]\nepochs = 2\nbatch = 8\noptimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    std::fs::write(folder.join("lines.txt"), "the o_d fox.\na r_ver\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "text", "lines.txt", "--force"]);
    assert_eq!(code, 0, "{stderr}");
    let rows = table(&folder.join("predictions.csv"));
    assert_eq!(rows[1][0], "the o_d fox.");
    assert!(rows[1][1].starts_with("the o") && rows[1][1].ends_with("d fox."));
    assert!(!rows[1][1].contains('_') && rows[2][1].len() == 7);
    std::fs::write(folder.join("lines.txt"), "The\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "text", "lines.txt", "--force"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("'T'"), "{stderr}");
}

#[test]
fn links_of_ones_own_edges_from_init_to_their_chances() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Two groups of twelve, everybody linked to everybody within them but for a few.
    let mut edges = String::from("who,whom\n");
    for a in 0..24 {
        for b in a + 1..24 {
            if a / 12 == b / 12 && (a * b) % 7 != 1 {
                edges += &format!("{b},{a}\n");
            }
        }
    }
    std::fs::write(folder.join("friends.csv"), edges).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "friends.csv", "--links"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("24 nodes") && stdout.contains("links"),
        "{stdout}"
    );
    let (code, stdout, stderr) = run(
        folder,
        &["train", "friends.toml", "--epochs", "100", "--no-verify"],
    );
    assert_eq!(code, 0, "{stderr}");
    let auc = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with("test_auc"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    // 11 held-out links against 11 pairs across the groups, mostly: chance is 0.5 ± 0.13.
    assert!(auc(&stdout) > 0.9, "{stdout}");
    std::fs::write(folder.join("pairs.csv"), "a,b\n0,1\n0,23\n").unwrap();
    let (code, _, stderr) = run(folder, &["run", "runs/friends", "pairs.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let rows = table(&folder.join("predictions.csv"));
    let chance = |row: usize| rows[row][2].parse::<f64>().unwrap();
    assert!(chance(1) > chance(2), "{rows:?}");

    let args = [
        "init",
        "friends.csv",
        "--features",
        "friends.csv",
        "--out",
        "x.toml",
    ];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("--labels") && stderr.contains("--links"),
        "{stderr}"
    );
    std::fs::write(folder.join("few.csv"), "a,b\n0,1\n1,2\n").unwrap();
    let (code, _, stderr) = run(folder, &["init", "few.csv", "--links"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("at least 20"), "{stderr}");
}
