//! A user's own tables: figures that hold, and what tables contain.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use common::{parts, retrograd, run};
use serde_json::Value;

fn summary(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("summary.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Numbers that look random and are the same everywhere.
fn noise(i: usize) -> f64 {
    ((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5
}

/// A table with a weak signal, rows in the order of `t`.
fn weak(rows: std::ops::Range<usize>) -> String {
    let mut text = String::from("t,a,b,c,y\n");
    for i in rows {
        let (a, b, c) = (noise(i), noise(3 * i + 1), noise(7 * i + 5));
        let y = 10.0 + a + 2.0 * b * c + 3.0 * noise(11 * i + 3);
        text += &format!("{i},{a},{b},{c},{y}\n");
    }
    text
}

fn value(stdout: &str, name: &str) -> f64 {
    let line = stdout
        .lines()
        .find(|l| l.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {stdout}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The reported figure is the one that rows kept aside give: by time these rows are known, and `run`
/// measures them again.
#[test]
fn the_reported_figure_is_that_of_rows_which_neither_taught_nor_chose() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("weak.csv"), weak(0..200)).unwrap();
    std::fs::write(folder.join("latest.csv"), weak(160..200)).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "weak.csv", "--target", "y"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("for the figures that are reported"),
        "{stdout}"
    );
    let file = folder.join("weak.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("# time = \"COLUMN\"", "time = \"t\"");
    assert!(text.contains("\ntime = \"t\""), "{text}");
    // The column that the split goes by is none of those to leave out by hand.
    let text = text.replace("ignore = [\"t\"]", "");
    std::fs::write(&file, text).unwrap();
    let (code, stdout, stderr) = run(folder, &["train", "weak.toml", "--epochs", "60"]);
    assert_eq!(code, 0, "{stderr}");
    let best = value(&stdout, "best_epoch");
    for name in ["r2", "rmse", "mae", "test_loss"] {
        let line = stdout.lines().find(|l| l.starts_with(name)).unwrap();
        let from = format!("40 test rows, epoch {best}");
        assert!(line.ends_with(&from), "{line}");
    }
    for (name, rows) in [
        ("train_loss", "128 training"),
        ("validation_r2", "32 validation"),
    ] {
        let line = stdout.lines().find(|l| l.starts_with(name)).unwrap();
        assert!(
            line.ends_with(&format!("{rows} rows, epoch {best}")),
            "{line}"
        );
    }
    let run_folder = folder.join("runs/weak");
    let figures = summary(&run_folder);
    assert_eq!(figures["measured_on"]["r2"]["part"], "test");
    assert_eq!(figures["measured_on"]["r2"]["epoch"], figures["best_epoch"]);
    let page = std::fs::read_to_string(run_folder.join("report.html")).unwrap();
    assert!(page.contains(&format!(
        "<dd class=\"from\">40 test rows, epoch {best}</dd>"
    )));
    let (code, stdout, stderr) = run(folder, &["run", "runs/weak", "latest.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let (reported, again) = (figures["r2"].as_f64().unwrap(), value(&stdout, "r2"));
    assert!((reported - again).abs() < 1e-12, "{reported} and {again}");
    assert!(figures["validation_r2"].as_f64().unwrap() != reported);
}

#[test]
fn five_positives_of_two_hundred_are_in_every_part() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut text = String::from("a,b,y\n");
    for i in 0..200 {
        let word = if i % 40 == 3 { "pos" } else { "neg" };
        text += &format!("{},{},{word}\n", noise(i), noise(5 * i + 2));
    }
    std::fs::write(folder.join("rare.csv"), text).unwrap();
    run(folder, &["init", "rare.csv", "--target", "y"]);
    let (code, stdout, stderr) = run(
        folder,
        &["train", "rare.toml", "--epochs", "3", "--no-verify"],
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("split by class"), "{stderr}");
    let confusion = &summary(&folder.join("runs/rare"))["confusion"];
    let row = |r: usize| {
        [0, 1]
            .map(|c| confusion[r][c].as_f64().unwrap())
            .iter()
            .sum::<f64>()
    };
    assert_eq!([row(0), row(1)], [39.0, 1.0], "{confusion}");
    assert!(stdout.contains("40 test rows"), "{stdout}");
}

#[test]
fn folds_give_mean_and_deviation_and_a_model_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("weak.csv"), weak(0..90)).unwrap();
    run(folder, &["init", "weak.csv", "--target", "y"]);
    let args = [
        "train",
        "weak.toml",
        "--folds",
        "3",
        "--epochs",
        "12",
        "--no-verify",
    ];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    let mut tested = 0;
    let mut scores = Vec::new();
    let mut epochs = Vec::new();
    for fold in ["1", "2", "3"] {
        let figures = summary(&folder.join("runs/weak-folds").join(fold));
        tested += figures["measured_on"]["r2"]["count"].as_u64().unwrap();
        scores.push(figures["r2"].as_f64().unwrap());
        epochs.push(figures["best_epoch"].as_u64().unwrap());
    }
    assert_eq!(tested, 90, "every row is tested on once");
    let whole = summary(&folder.join("runs/weak"));
    let mean = scores.iter().sum::<f64>() / 3.0;
    let deviation = (scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let said = &whole["folds"]["r2"];
    assert!((said["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert!((said["deviation"].as_f64().unwrap() - deviation).abs() < 1e-12);
    epochs.sort_unstable();
    assert_eq!(whole["epochs"].as_u64(), Some(epochs[1]), "the median");
    assert_eq!(whole["training_samples"], 90);
    let last: Vec<&str> = stdout.lines().rev().take(2).collect();
    assert!(
        last[1].starts_with("mean ± deviation") && last[0].contains("folds.csv"),
        "{stdout}"
    );
    let page = std::fs::read_to_string(folder.join("runs/weak/report.html")).unwrap();
    assert!(page.contains("Cross-validation, 3 folds"));
    // The model of all rows predicts.
    let (code, _, stderr) = run(folder, &["run", "runs/weak", "weak.csv"]);
    assert_eq!(code, 0, "{stderr}");
    // What has no rows has no folds.
    let (code, _, stderr) = run(folder, &["train", "karate", "--folds", "3"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("--folds") && stderr.contains("\"graph\""),
        "{stderr}"
    );
}

#[test]
fn seeds_give_a_folder_each_and_a_table_with_the_best_marked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let args = [
        "train",
        "moons",
        "--seeds",
        "3",
        "--epochs",
        "2",
        "--no-verify",
        "--seed",
        "5",
    ];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    let losses = ["5", "6", "7"].map(|seed| {
        let figures = summary(&folder.join("runs/moons-seeds").join(seed));
        figures["validation_loss"].as_f64().unwrap()
    });
    let best = (0..3)
        .min_by(|&a, &b| losses[a].total_cmp(&losses[b]))
        .unwrap();
    let marked: Vec<&str> = stdout.lines().filter(|l| l.contains("(best)")).collect();
    assert_eq!(marked.len(), 1, "{stdout}");
    assert!(marked[0].starts_with(&(5 + best).to_string()), "{stdout}");
    let table = std::fs::read_to_string(folder.join("runs/moons-seeds/seeds.csv")).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.contains("mean ± deviation"), "{table}");
}

/// The table that the next tests read in every form.
const COLOURS: &str = "größe,colour,y\n1.5,rot,1\n2.5,grün,2\n3.5,rot,3\n4.5,grün,4\n5.5,rot,5\n\
                       6.5,grün,6\n7.5,rot,7\n8.5,grün,8\n9.5,rot,9\n10.5,grün,10\n11.5,rot,11\n";

#[test]
fn encodings_gzip_blanks_and_standard_input_give_the_same_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("colours.csv"), COLOURS).unwrap();
    run(
        folder,
        &[
            "init",
            "colours.csv",
            "--target",
            "y",
            "--task",
            "regression",
        ],
    );
    let (code, _, stderr) = run(
        folder,
        &["train", "colours.toml", "--epochs", "2", "--no-verify"],
    );
    assert_eq!(code, 0, "{stderr}");
    let latin: Vec<u8> = COLOURS.chars().map(|c| c as u8).collect();
    let wide: Vec<u8> = COLOURS.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide = [&[0xff, 0xfe][..], &wide].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(COLOURS.as_bytes()).unwrap();
    let files: [(&str, Vec<u8>, &str); 5] = [
        ("plain.csv", COLOURS.into(), ""),
        ("latin.csv", latin, "Latin-1"),
        ("wide.csv", wide, "UTF-16"),
        ("packed.csv.gz", gzip.finish().unwrap(), ""),
        ("blanks.txt", COLOURS.replace(',', "  ").into(), ""),
    ];
    let mut said = Vec::new();
    for (name, bytes, note) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
        let (code, _, stderr) = run(
            folder,
            &["run", "runs/colours", name, "--out", "o.csv", "--force"],
        );
        assert_eq!(code, 0, "{name}: {stderr}");
        assert!(stderr.contains(note), "{name}: {stderr}");
        said.push(std::fs::read_to_string(folder.join("o.csv")).unwrap());
    }
    let mut command = retrograd(folder);
    command.args(["run", "runs/colours", "-", "--out", "o.csv", "--force"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(COLOURS.as_bytes())
        .unwrap();
    let (code, _, stderr) = parts(child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    said.push(std::fs::read_to_string(folder.join("o.csv")).unwrap());
    assert!(said.iter().all(|s| *s == said[0]), "{said:?}");
    assert_eq!(said[0].lines().count(), 12);
}

/// A command that is given a text on its standard input.
fn typed(folder: &Path, args: &[&str], text: &str) -> (i32, String, String) {
    let mut child = retrograd(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    parts(child.wait_with_output().unwrap())
}

/// From standard input the experiment is that of the file, but for where the table is; training
/// reads it from there, too.
#[test]
fn init_and_train_read_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("table.csv"), COLOURS).unwrap();
    let options = ["--target", "y", "--task", "regression", "--out"];
    let init = |data: &str, out: &str, text: &str| {
        let args = [&["init", data][..], &options, &[out]].concat();
        let (code, stdout, stderr) = typed(folder, &args, text);
        assert_eq!(code, 0, "{stderr}");
        let written = std::fs::read_to_string(folder.join(out)).unwrap();
        (stdout.lines().next().unwrap().to_string(), written)
    };
    let of_file = init("table.csv", "file.toml", "");
    let of_stdin = init("-", "stdin.toml", COLOURS);
    assert_eq!(of_file.0, of_stdin.0);
    let settings = |text: &str| {
        let lines = text.lines().filter(|l| !l.starts_with(['#', 'n', 'a']));
        lines.collect::<Vec<_>>().join("\n")
    };
    let (file, stdin) = (settings(&of_file.1), settings(&of_stdin.1));
    assert!(stdin.contains("file = \"-\""), "{stdin}");
    assert_eq!(file.replace("\"table.csv\"", "\"-\""), stdin);
    let args = ["train", "stdin.toml", "--epochs", "1", "--no-verify"];
    let (code, _, stderr) = typed(folder, &args, COLOURS);
    assert_eq!(code, 0, "{stderr}");
    // Nothing to read is an error that says so.
    let args = ["init", "-", "--target", "y", "--out", "empty.toml"];
    let (code, _, stderr) = typed(folder, &args, "");
    assert_eq!(code, 2, "{stderr}");
    assert!(!folder.join("empty.toml").exists());
}

/// Unseen categories in rows without a target used to stop `run`.
#[test]
fn unseen_categories_are_counted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("colours.csv"), COLOURS).unwrap();
    run(
        folder,
        &[
            "init",
            "colours.csv",
            "--target",
            "y",
            "--task",
            "regression",
        ],
    );
    run(
        folder,
        &["train", "colours.toml", "--epochs", "2", "--no-verify"],
    );
    let new = "größe,colour,y\n1,teal,\n2,rot,2\n3,teal,3\n4,mauve,4\n";
    std::fs::write(folder.join("new.csv"), new).unwrap();
    let (code, _, stderr) = run(
        folder,
        &["run", "runs/colours", "new.csv", "--out", "o.csv"],
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("3 of 4 rows have a \"colour\" that training did not see"),
        "{stderr}"
    );
    assert!(stderr.contains("\"teal\" (line 2)"), "{stderr}");
    let said = std::fs::read_to_string(folder.join("o.csv")).unwrap();
    assert_eq!(said.lines().count(), 5, "{said}");
}

#[test]
fn init_names_dates_ids_text_percentages_and_currencies() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut text = String::from("CustomerID,joined,rate,income,comment,y\n");
    for i in 0..60 {
        let (month, day) = (1 + i % 12, 1 + i % 28);
        text += &format!(
            "{},{:02}.{:02}.{},{}%,\"${},{:03}.50\",\"note {} about a customer who came in\",{}\n",
            9000 + 37 * ((i * 7) % 60),
            day,
            month,
            2020 + i / 12,
            i % 50,
            1 + i % 9,
            i,
            i % 13,
            noise(i)
        );
    }
    std::fs::write(folder.join("t.csv"), text).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "t.csv", "--target", "y"]);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "CustomerID: identifies the rows",
        "joined: day, month, year",
        "comment: is free text",
        "(3 columns: joined, rate, income)",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let (code, _, stderr) = run(folder, &["train", "t.toml", "--epochs", "1", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("sin(joined of year)"), "{stderr}");
}

/// Two rings of people who know each other, by name, with classes as text and no features.
#[test]
fn a_graph_of_names_with_classes_as_text_goes_from_init_to_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut edges, mut labels) = (
        String::from("from,to,calls\n"),
        String::from("person,team\n"),
    );
    for i in 0..40 {
        let (ring, next) = (i / 20, i / 20 * 20 + (i + 1) % 20);
        let over = i / 20 * 20 + (i + 3) % 20;
        edges += &format!(
            "p{i:02},p{next:02},{}\np{i:02},p{over:02},{}\n",
            i % 5 + 1,
            i % 3 + 1
        );
        labels += &format!("p{i:02},{}\n", ["red", "blue"][ring]);
    }
    std::fs::write(folder.join("people.csv"), edges).unwrap();
    std::fs::write(folder.join("teams.csv"), labels).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "people.csv", "--labels", "teams.csv"]);
    assert_eq!(code, 0, "{stderr}");
    for part in ["40 nodes", "known by names", "(blue, red)", "an embedding"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let (code, stdout, stderr) = run(
        folder,
        &["train", "people.toml", "--epochs", "60", "--no-verify"],
    );
    assert_eq!(code, 0, "{stderr}");
    let line = stdout
        .lines()
        .find(|l| l.starts_with("test_accuracy"))
        .unwrap();
    assert!(line.contains("8 test nodes, epoch"), "{line}");
    let (code, _, stderr) = run(folder, &["run", "runs/people"]);
    assert_eq!(code, 0, "{stderr}");
    let said = std::fs::read_to_string(folder.join("predictions.csv")).unwrap();
    assert!(said.starts_with("node,predicted,p(blue),p(red)"), "{said}");
    assert!(said.lines().nth(1).unwrap().starts_with("p00,"), "{said}");
}

/// Two rings as GraphML, with an attribute of its own for every node.
fn rings() -> String {
    let mut text = String::from(
        "<graphml><key id=\"a\" for=\"node\" attr.name=\"age\" attr.type=\"double\"/>\
         <key id=\"t\" for=\"node\" attr.name=\"team\" attr.type=\"string\"/>\
         <key id=\"k\" for=\"node\" attr.name=\"kind\" attr.type=\"string\"/>\
         <graph edgedefault=\"undirected\">\n",
    );
    for i in 0..40 {
        let (ring, kind) = (i / 20, ["round", "square"][i % 2]);
        text += &format!(
            "<node id=\"p{i:02}\"><data key=\"a\">{}</data><data key=\"k\">{kind}</data>\
             <data key=\"t\">{}</data></node>\n",
            ring as f64 + noise(i),
            ["red", "blue"][ring]
        );
    }
    for i in 0..40 {
        let next = i / 20 * 20 + (i + 1) % 20;
        text += &format!("<edge source=\"p{i:02}\" target=\"p{next:02}\"/>\n");
    }
    text + "</graph></graphml>\n"
}

#[test]
fn graphml_goes_from_init_to_predictions_with_its_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("rings.graphml"), rings()).unwrap();
    let (code, _, stderr) = run(folder, &["init", "rings.graphml"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("--target") && stderr.contains("age, kind, team"),
        "{stderr}"
    );
    let (code, stdout, stderr) = run(folder, &["init", "rings.graphml", "--target", "team"]);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "40 nodes",
        "(blue, red)",
        "age",
        "kind (round, square)",
        "as the file says",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let train = ["train", "rings.toml", "--epochs", "60", "--no-verify"];
    let (code, stdout, stderr) = run(folder, &train);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("test_accuracy"), "{stdout}");
    // The same graph as another program would write it, with names that the run has not seen.
    std::fs::write(folder.join("new.graphml"), rings().replace("p0", "q0")).unwrap();
    let args = ["run", "runs/rings", "new.graphml", "--out", "said.csv"];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    let said = std::fs::read_to_string(folder.join("said.csv")).unwrap();
    assert!(said.lines().nth(1).unwrap().starts_with("q00,"), "{said}");
    assert_eq!(said.lines().count(), 41);
    let (code, _, stderr) = run(
        folder,
        &["init", "rings.graphml", "--links", "--out", "l.toml"],
    );
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = run(folder, &["train", "l.toml", "--epochs", "2", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
}

/// A ring of so many nodes, with its size as the graph's number.
fn ring(nodes: usize, chord: bool) -> String {
    let mut text = format!("graph [\n  size {}.5\n", nodes);
    for i in 0..nodes {
        text += &format!("  node [ id {i} charge {} ]\n", i % 3);
    }
    for i in 0..nodes {
        text += &format!("  edge [ source {i} target {} ]\n", (i + 1) % nodes);
        if chord && i % 2 == 0 {
            text += &format!("  edge [ source {i} target {} ]\n", (i + 2) % nodes);
        }
    }
    text + "]\n"
}

/// Classes by folder, by a table and by an attribute; numbers in their own units.
#[test]
fn a_folder_of_graphs_goes_from_init_to_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let graphs = folder.join("graphs");
    for class in ["plain", "chords"] {
        std::fs::create_dir_all(graphs.join(class)).unwrap();
    }
    let mut table = String::from("file,kind\n");
    for n in 0..24 {
        let class = ["plain", "chords"][n % 2];
        let text = ring(8 + n / 2, n % 2 == 1);
        std::fs::write(graphs.join(class).join(format!("g{n:02}.gml")), text).unwrap();
        table += &format!("g{n:02}.gml,{}\n", ["A", "B"][n % 2]);
    }
    std::fs::write(folder.join("kinds.csv"), table).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "graphs"]);
    assert_eq!(code, 0, "{stderr}");
    for part in ["24 graphs", "one of 2 (chords, plain)", "charge"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let train = |name: &str| {
        let file = folder.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text
            .replace("folds = 10", "folds = 3")
            .replace("epochs = 100", "epochs = 20");
        std::fs::write(&file, text).unwrap();
        let args = ["train", &format!("{name}.toml"), "--no-verify"];
        let (code, stdout, stderr) = run(folder, &args);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let stdout = train("graphs");
    assert!(
        stdout.contains("folds_mean") && stdout.contains("8 test graphs"),
        "{stdout}"
    );
    // One folder without classes, by name.
    let args = ["run", "runs/graphs", "graphs/plain", "--out", "said.csv"];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    let said = std::fs::read_to_string(folder.join("said.csv")).unwrap();
    assert!(
        said.starts_with("graph,predicted,p(chords),p(plain)\ng00,"),
        "{said}"
    );
    let args = [
        "init",
        "graphs",
        "--labels",
        "kinds.csv",
        "--out",
        "kinds.toml",
    ];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("one of 2 (A, B)"), "{stdout}");
    // An attribute of the graphs that is a number: figures in its own units.
    let args = ["init", "graphs", "--target", "size", "--out", "size.toml"];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("a number of a graph"), "{stdout}");
    let stdout = train("size");
    let (rmse, r2) = (value(&stdout, "test_rmse"), value(&stdout, "test_r2"));
    // Sizes are 8.5 to 19.5, some 3.5 around their mean: R² follows from the RMSE in these units.
    let spread = rmse / (1.0 - r2).sqrt();
    assert!((2.5..4.6).contains(&spread), "{rmse} {r2}");
    let (code, stdout, stderr) = run(folder, &["run", "runs/size", "--out", "sizes.csv"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("rmse") && stdout.contains("r2"), "{stdout}");
    let said = std::fs::read_to_string(folder.join("sizes.csv")).unwrap();
    let mean = said
        .lines()
        .skip(1)
        .map(|l| l.split(',').nth(1).unwrap().parse::<f64>().unwrap());
    let mean = mean.sum::<f64>() / 24.0;
    assert!((8.0..20.0).contains(&mean), "{said}");
    // A graph of which nothing is known.
    std::fs::write(graphs.join("alone.gml"), ring(9, false)).unwrap();
    let args = [
        "init",
        "graphs",
        "--labels",
        "kinds.csv",
        "--out",
        "alone.toml",
    ];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("kinds.csv") && stderr.contains("alone"),
        "{stderr}"
    );
}

/// Lists of edges in a folder for each class, with nothing but their places to tell what they are.
#[test]
fn lists_of_edges_in_folders_are_graphs_of_classes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["ring", "chain"] {
        std::fs::create_dir_all(folder.join("shapes").join(class)).unwrap();
        for n in 0..8 {
            let size = 5 + n % 4;
            let next = |i: usize| {
                if class == "ring" {
                    (i + 1) % size
                } else {
                    i + 1
                }
            };
            let edges: String = (0..size).map(|i| format!("{i} {}\n", next(i))).collect();
            let path = format!("shapes/{class}/{n}.txt");
            std::fs::write(folder.join(path), edges).unwrap();
        }
    }
    let (code, stdout, stderr) = run(folder, &["init", "shapes"]);
    assert_eq!(code, 0, "{stderr}");
    for part in ["16 graphs", "one of 2 (chain, ring)"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let args = ["train", "shapes.toml", "--epochs", "2", "--no-verify"];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    // Notes beside images make no graphs of them.
    for half in ["odd", "even"] {
        std::fs::create_dir_all(folder.join("scenes").join(half)).unwrap();
        std::fs::write(folder.join(format!("scenes/{half}/log.txt")), "1 2\n").unwrap();
        std::fs::write(folder.join(format!("scenes/{half}/a.mrc")), "short").unwrap();
    }
    let (code, _, stderr) = run(folder, &["init", "scenes"]);
    assert!(code == 2 && stderr.contains("a.mrc"), "{stderr}");
}

/// An experiment of an automaton with its `[data]`.
fn automaton(folder: &Path, name: &str, channels: usize, data: &str, epochs: usize) {
    let text = format!(
        "name = \"{name}\"\n[model]\nfamily = \"logic_ca\"\nchannels = {channels}\nkernels = 4\n\
         perception = [9, 8, 4, 2, 1]\nupdate = [{}, {}]\nboundary = \"periodic\"\nsteps = 1\n\
         [data]\n{data}\n\
         [train]\nepochs = {epochs}\nbatch = 4\noptimizer = {{ kind = \"adam\", lr = 0.05 }}\n",
        channels + 4 * channels,
        if channels == 1 {
            "8, 4, 2, 1"
        } else {
            "16, 8, 4, 2"
        },
    );
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

#[test]
fn an_automaton_that_did_not_learn_says_so_last_and_fails_where_learning_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    automaton(
        folder,
        "high",
        1,
        "grid = [3, 3]\nstart = \"random\"\ntarget = \"life\"\nrule = \"B36/S23\"",
        2,
    );
    let (code, stdout, stderr) = run(folder, &["train", "high.toml", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
    let last = stdout.lines().last().unwrap();
    assert!(
        last.starts_with("did not learn: ") && last.contains("boards are not as B36/S23 says"),
        "{last}"
    );
    assert!(last.contains("--seeds 5"), "{last}");
    assert_eq!(summary(&folder.join("runs/high"))["learned"], false);
    let args = ["train", "high.toml", "--no-verify", "--require-learned"];
    assert_eq!(run(folder, &args).0, 1);
    // Other rules are refused by name.
    automaton(
        folder,
        "bad",
        1,
        "grid = [3, 3]\nstart = \"random\"\ntarget = \"life\"\nrule = \"36/23\"",
        2,
    );
    let (code, _, stderr) = run(folder, &["train", "bad.toml"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("36/23") && stderr.contains("B36/S23"),
        "{stderr}"
    );
}

#[test]
fn an_automaton_takes_its_target_and_its_start_from_pictures() {
    use retrograd::data::image::{Format, Image};
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut target = Image::new(6, 4);
    target.pixels.fill(255.0);
    target.pixels[8..10].fill(0.0);
    target
        .write(folder.join("target.png"), &Format::Png { bits: 8 })
        .unwrap();
    let mut start = Image::new(2, 2);
    start.pixels[3] = 255.0;
    start
        .write(folder.join("start.png"), &Format::Png { bits: 8 })
        .unwrap();
    let data = "start = \"bitmap\"\nstart_picture = \"start.png\"\ntarget = \"bitmap\"\npicture = \"target.png\"";
    automaton(folder, "own", 2, data, 3);
    let (code, stdout, stderr) = run(folder, &["train", "own.toml", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("target.png: 6 × 4, two colours become one channel: #000000 is 1"),
        "{stderr}"
    );
    assert!(stdout.contains("hard_loss"), "{stdout}");
    // The run needs the pictures no more.
    std::fs::remove_file(folder.join("target.png")).unwrap();
    std::fs::remove_file(folder.join("start.png")).unwrap();
    let (code, stdout, stderr) = run(folder, &["run", "runs/own"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("6×4"), "{stdout}");
}

#[test]
fn a_kan_on_a_table_is_explained_by_a_formula_of_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut text = String::from("length,width,area\n");
    for i in 0..200 {
        let (a, b) = (2.0 * noise(i), 2.0 * noise(5 * i + 1));
        text += &format!("{a},{b},{}\n", 100.0 + 20.0 * a * a + 10.0 * b);
    }
    std::fs::write(folder.join("plots.csv"), text).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "plots.csv", "--target", "area", "--kan"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Kolmogorov-Arnold"), "{stdout}");
    let (code, _, stderr) = run(folder, &["train", "plots.toml", "--no-verify"]);
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = run(folder, &["explain", "runs/plots"]);
    assert_eq!(code, 0, "{stderr}");
    let formula = stdout.lines().find(|l| l.starts_with("formula")).unwrap();
    for name in ["area = ", "length", "width"] {
        assert!(formula.contains(name), "{formula}");
    }
    let r2 = stdout.lines().find(|l| l.starts_with("r2")).unwrap();
    assert!(
        r2.contains("by the formula") && r2.contains("40 test rows"),
        "{r2}"
    );
    let values: Vec<f64> = r2
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    // The function is smooth and without noise: both say nearly all of it.
    assert!(values[0] > 0.9 && values[1] > 0.95, "{r2}");
    let svg = std::fs::read_to_string(folder.join("runs/plots/explained.svg")).unwrap();
    assert!(
        svg.contains(">length</text>") && svg.contains(">area</text>"),
        "{svg}"
    );
    // A folder that is not there yet is made.
    let (code, _, stderr) = run(folder, &["explain", "runs/plots", "--out", "told/here"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(folder.join("told/here/formula.txt").exists());
    // A network of other layers has no formula.
    run(
        folder,
        &[
            "init",
            "plots.csv",
            "--target",
            "area",
            "--out",
            "plain.toml",
        ],
    );
    run(
        folder,
        &["train", "plain.toml", "--epochs", "1", "--no-verify"],
    );
    let (code, _, stderr) = run(folder, &["explain", "runs/plain"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--kan"), "{stderr}");
}

/// Names with line ends and control characters stay what they are: neither the end of a comment nor a
/// colour of the terminal.
#[cfg(unix)]
#[test]
fn names_that_end_lines_neither_end_comments_nor_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("odd\nname = \"else\"\u{1b}[31m");
    std::fs::create_dir(&odd).unwrap();
    let mut text = String::from("\"a\nepochs = 9\u{1}\",\"b\u{7f}\",y\n");
    for i in 0..60 {
        text += &format!("word {i},{},{}\n", noise(i), noise(3 * i + 1));
    }
    std::fs::write(odd.join("t.csv"), text).unwrap();
    let mut marked = String::from(
        "<graphml><key id=\"c\" for=\"node\" attr.name=\"co&#10;&quot;lour\"/>\
         <key id=\"t\" for=\"node\" attr.name=\"team\"/><graph edgedefault=\"undirected\">",
    );
    for i in 0..40 {
        let (colour, team) = (["red", "bl&#10;ue"][i % 2], ["a", "b"][i / 2 % 2]);
        marked += &format!(
            "<node id=\"n{i}\"><data key=\"c\">{colour}</data><data key=\"t\">{team}</data></node>"
        );
    }
    for i in 0..40 {
        marked += &format!("<edge source=\"n{i}\" target=\"n{}\"/>", (i + 1) % 40);
    }
    marked += "</graph></graphml>";
    std::fs::write(odd.join("g.graphml"), marked).unwrap();
    for (data, target) in [("t.csv", "y"), ("g.graphml", "team")] {
        let path = |name: &str| odd.join(name).to_str().unwrap().to_string();
        let file = path("made.toml");
        let init = [
            "init",
            &path(data),
            "--target",
            target,
            "--out",
            &file,
            "--force",
        ];
        let (code, stdout, stderr) = run(folder.path(), &init);
        assert_eq!(code, 0, "{data}: {stderr}");
        assert!(
            !stdout.contains('\u{1b}') && stdout.contains("\\u{1b}[31m"),
            "{stdout:?}"
        );
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains("\nname = \"else\"") && !text.contains("\nepochs = 9"),
            "{text}"
        );
        let run_folder = path(&format!("run-{target}"));
        let train = [
            "train",
            &file,
            "--epochs",
            "1",
            "--no-verify",
            "--out",
            &run_folder,
        ];
        let (code, stdout, stderr) = run(folder.path(), &train);
        assert_eq!(code, 0, "{data}: {stderr}");
        assert!(
            !stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'),
            "{stdout:?}{stderr:?}"
        );
    }
}
