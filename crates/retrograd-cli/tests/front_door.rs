//! The first hour of a user with data of their own: `init`, `train`, `run`; and the command line
//! itself: help, logs, completions, manual pages.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{experiment, parts, retrograd, run};
use retrograd::data::image::{Format, Image};
use serde_json::Value;

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A column of a CSV file without quotes.
fn column(text: &str, name: &str) -> Vec<String> {
    let mut lines = text.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    let at = header.iter().position(|h| *h == name).unwrap();
    lines
        .map(|line| line.split(',').nth(at).unwrap().to_string())
        .collect()
}

#[test]
fn a_table_of_numbers_from_init_to_predictions_in_its_own_units() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Semicolons, decimal commas, a row number, a category, a free text, a word for missing.
    let comma = |x: f64| format!("{x:.2}").replace('.', ",");
    let price =
        |size: f64, town: &str| 1000.0 + 40.0 * size + if town == "Bern" { 300.0 } else { 0.0 };
    let mut table = String::from("id;size;town;address;price\n");
    for i in 0..240 {
        let size = 20.0 + (i * 37 % 100) as f64;
        let town = ["Bern", "Thun"][i % 2];
        let shown = if i % 60 == 7 {
            "?".to_string()
        } else {
            comma(size)
        };
        let price = comma(price(size, town));
        writeln!(table, "{};{shown};{town};street {i};{price}", i + 1).unwrap();
    }
    std::fs::write(folder.join("flats.csv"), table).unwrap();
    let (code, stdout, stderr) = run(folder, &["init", "flats.csv", "--target", "price"]);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "a number (regression)",
        "id: numbers the rows",
        "address: 240 different texts",
        "\"?\" is taken for a missing value",
        "4 empty cells in 4 rows",
        "retrograd train flats.toml",
        "retrograd run runs/flats NEW.csv",
    ] {
        assert!(stdout.contains(part), "no {part:?} in\n{stdout}");
    }
    let file = text(folder.join("flats.toml"));
    for part in [
        "task = \"regression\"",
        "decimal = \",\"",
        "missing = \"mean\"",
        "normalise_targets = \"standard\"",
        "ignore = [\"id\", \"address\"]",
    ] {
        assert!(file.contains(part), "no {part:?} in\n{file}");
    }
    // Nothing is written over.
    let (code, _, stderr) = run(folder, &["init", "flats.csv", "--target", "price"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--force"), "{stderr}");
    assert_eq!(text(folder.join("flats.toml")), file);
    let again = ["init", "flats.csv", "--target", "price", "--force"];
    assert_eq!(run(folder, &again).0, 0);
    assert_eq!(text(folder.join("flats.toml")), file);

    let (code, stdout, stderr) = run(folder, &["train", "flats.toml", "--epochs", "150"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("verification"), "{stdout}");
    // Other columns, another order, one size missing.
    let new = "town;size\nBern;50,0\nThun;50,0\nThun;?\n";
    std::fs::write(folder.join("new.csv"), new).unwrap();
    let (code, _, stderr) = run(
        folder,
        &["run", "runs/flats", "new.csv", "--out", "said.csv"],
    );
    assert_eq!(code, 0, "{stderr}");
    let said: Vec<f64> = column(&text(folder.join("said.csv")), "predicted_price")
        .iter()
        .map(|cell| cell.parse().unwrap())
        .collect();
    // The prices span 4,300; a network that learnt anything is within a tenth of it.
    assert_eq!(said.len(), 3);
    assert!((said[0] - price(50.0, "Bern")).abs() < 430.0, "{said:?}");
    assert!((said[1] - price(50.0, "Thun")).abs() < 430.0, "{said:?}");
    // The missing one is taken for the mean size, about 70.
    assert!((said[2] - price(70.0, "Thun")).abs() < 600.0, "{said:?}");
    for (name, new, expected, parts) in [
        (
            "town.csv",
            "town;size\nBerne;50,0\n",
            0,
            ["1 of 1 rows have a \"town\"", "\"Berne\" (line 2)"],
        ),
        ("less.csv", "town\nBern\n", 2, ["size", "there is none"]),
    ] {
        std::fs::write(folder.join(name), new).unwrap();
        let (code, _, stderr) = run(folder, &["run", "runs/flats", name]);
        assert_eq!(code, expected);
        for part in parts {
            assert!(stderr.contains(part), "{stderr}");
        }
    }
}

#[test]
fn a_table_of_classes_from_init_to_labels_and_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // No header, text classes, as many data sets come.
    let mut table = String::new();
    for i in 0..150 {
        let (kind, noise) = (i % 3, (i * 71 % 97) as f64 / 97.0 - 0.5);
        let name = ["setosa", "versicolor", "virginica"][kind];
        let (a, b) = (kind as f64 * 2.0 + noise, 5.5 - kind as f64 + noise * 0.5);
        writeln!(table, "{a:.3},{b:.3},{name}").unwrap();
    }
    std::fs::write(folder.join("iris.data"), &table).unwrap();
    let out = ["--out", "flowers.toml"];
    let args = [&["init", "iris.data", "--target", "2"][..], &out].concat();
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("a class (classification): it holds text"),
        "{stdout}"
    );
    let file = text(folder.join("flowers.toml"));
    assert!(
        file.contains("header = false") && file.contains("name = \"flowers\""),
        "{file}"
    );
    let (code, _, stderr) = run(folder, &["train", "flowers.toml", "--epochs", "60"]);
    assert_eq!(code, 0, "{stderr}");
    let rows = "4.1,3.4\n0.1,5.4\n";
    std::fs::write(folder.join("new.csv"), rows).unwrap();
    let (code, _, stderr) = run(folder, &["run", "runs/flowers", "new.csv"]);
    assert_eq!(code, 0, "{stderr}");
    let said = text(folder.join("new.predictions.csv"));
    assert_eq!(column(&said, "predicted_2"), ["virginica", "setosa"]);
    for line in said.lines().skip(1) {
        let shares: f64 = line
            .split(',')
            .skip(1)
            .map(|p| p.parse::<f64>().unwrap())
            .sum();
        assert!((shares - 1.0).abs() < 1e-5, "{said}");
    }
    // The network that the file offers in its comments fits, too.
    let kan: String = file
        .replace("layers = [\n  {", "unused = [\n  {")
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(code) if code.starts_with("layers") || code.starts_with(']') => code,
            Some(code) if code.trim_start().starts_with("{ kind = \"kan\"") => code,
            _ => line,
        })
        .map(|line| line.to_string() + "\n")
        .collect();
    let start = kan.find("unused = [").unwrap();
    let end = start + kan[start..].find("\n]\n").unwrap() + 3;
    let kan = format!("{}{}", &kan[..start], &kan[end..]);
    std::fs::write(folder.join("kan.toml"), kan).unwrap();
    let (code, _, stderr) = run(
        folder,
        &["train", "kan.toml", "--epochs", "1", "--out", "kan"],
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(text(folder.join("kan/report.html")).contains("Kolmogorov"));
}

#[test]
fn what_is_predicted_follows_from_the_values_and_bad_tables_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = |value: fn(usize) -> String| -> String {
        let rows = (0..100).map(|i| format!("{},{}\n", i * 7 % 31, value(i)));
        "x,y\n".to_string() + &rows.collect::<String>()
    };
    for (name, table, expected) in [
        ("codes", rows(|i| (i % 4).to_string()), "classification"),
        ("two", rows(|i| (i % 2 * 5).to_string()), "classification"),
        ("grades", rows(|i| (i % 4 + 3).to_string()), "regression"),
        ("many", rows(|i| i.to_string()), "regression"),
        ("floats", rows(|i| format!("{}.5", i % 4)), "regression"),
    ] {
        let file = format!("{name}.csv");
        std::fs::write(folder.join(&file), table).unwrap();
        let (code, stdout, stderr) = run(folder, &["init", &file, "--target", "y"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains(expected), "{name}: {stdout}");
    }
    let task = [
        "init",
        "codes.csv",
        "--target",
        "y",
        "--task",
        "regression",
        "--out",
        "n.toml",
    ];
    let (code, stdout, _) = run(folder, &task);
    assert!(
        code == 0 && stdout.contains("(regression): as --task says"),
        "{stdout}"
    );
    std::fs::write(folder.join("same.csv"), rows(|_| "1".into())).unwrap();
    std::fs::write(folder.join("text.csv"), rows(|i| format!("word {i}"))).unwrap();
    std::fs::write(folder.join("short.csv"), "x,y\n1,2\n2,3\n").unwrap();
    for (args, parts) in [
        (
            &["codes.csv", "--out", "o.toml"][..],
            &["--target COLUMN", "x, y"][..],
        ),
        (
            &["codes.csv", "--target", "yy", "--out", "o.toml"],
            &["\"yy\"", "did you mean \"y\""],
        ),
        (&["same.csv", "--target", "y"], &["same.csv", "at least 2"]),
        (
            &["text.csv", "--target", "y"],
            &["100 different values", "needs numbers"],
        ),
        (&["short.csv", "--target", "y"], &["2 rows", "at least 10"]),
        (
            &["none.csv", "--target", "y"],
            &["none.csv", "no such file"],
        ),
        (
            &["codes.csv", "--target", "y", "--out", "o.txt"],
            &[".toml"],
        ),
        (
            &["codes.csv", "--labels", "y.csv", "--out", "o.toml"],
            &["y.csv", "cannot read"],
        ),
    ] {
        let args = [&["init"], args].concat();
        let (code, _, stderr) = run(folder, &args);
        assert_eq!(code, 2, "{args:?}");
        for part in parts {
            assert!(stderr.contains(part), "{args:?}: {stderr}");
        }
    }
    assert!(!folder.join("o.toml").exists() && !folder.join("text.toml").exists());
}

/// A noisy wave, 48 pixels wide and 40 high.
fn noisy(number: usize, half: usize) -> Image {
    let mut image = Image::new(48, 40);
    for (i, pixel) in image.pixels.iter_mut().enumerate() {
        let (x, y) = ((i % 48) as f32, (i / 48) as f32);
        let noise = ((i * 7919 + number * 104_729 + half * 1_299_709) % 1009) as f32 / 1009.0;
        *pixel = 128.0 + 60.0 * (x / (4.0 + number as f32)).sin() * (y / 6.0).cos() + 40.0 * noise;
    }
    image
}

#[test]
fn a_folder_of_images_becomes_a_denoiser_alone_or_in_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |path: &str, image: &Image| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        image.write(&path, &Format::Png { bits: 8 }).unwrap();
    };
    for number in 0..3 {
        write(&format!("single/{number}.png"), &noisy(number, 0));
        for (half, word) in ["odd", "even"].into_iter().enumerate() {
            let image = noisy(number, half);
            write(&format!("named/scene{number}_{word}.png"), &image);
            write(&format!("apart/{word}/scene{number}.png"), &image);
        }
    }
    write("named/alone.png", &noisy(7, 0));
    for (name, method, said) in [
        ("single", "noise2void", "no two names show halves"),
        ("named", "noise2noise", "3 pairs by name"),
        (
            "apart",
            "noise2noise",
            "3 pairs in the folders odd and even",
        ),
    ] {
        let (code, stdout, stderr) = run(folder, &["init", name]);
        assert_eq!(code, 0, "{name}: {stderr}");
        assert!(stdout.contains(said), "{stdout}");
        assert_eq!(
            stdout.contains("1 image without a partner"),
            name == "named",
            "{stdout}"
        );
        let file = format!("{name}.toml");
        let draft = text(folder.join(&file));
        assert!(draft.contains(&format!("method = \"{method}\"")), "{draft}");
        assert!(draft.contains("patch = 40"), "{draft}");
        let args = ["train", &file, "--epochs", "1", "--no-verify"];
        let (code, _, stderr) = run(folder, &args);
        assert_eq!(code, 0, "{name}: {stderr}");
        let run_folder = format!("runs/{name}");
        let out = format!("denoised-{name}");
        let args = ["run", &run_folder, "single/0.png", "--out", &out];
        let (code, _, stderr) = run(folder, &args);
        assert_eq!(code, 0, "{stderr}");
    }
    assert!(text(folder.join("named.toml")).contains("\"named/scene*_odd.png\""));
    std::fs::create_dir(folder.join("empty")).unwrap();
    let (code, _, stderr) = run(folder, &["init", "empty"]);
    assert!(
        code == 2 && stderr.contains("no image") && stderr.contains(".mrc"),
        "{stderr}"
    );
    std::fs::create_dir(folder.join("broken")).unwrap();
    std::fs::write(folder.join("broken/a.mrc"), "short").unwrap();
    let (code, _, stderr) = run(folder, &["init", "broken"]);
    assert!(code == 2 && stderr.contains("a.mrc"), "{stderr}");
}

#[test]
fn an_edge_list_becomes_a_node_classifier() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Two groups that are linked within themselves; a loop and an edge that comes twice.
    let (mut edges, mut features) = (String::from("source,target\n"), String::from("a,b\n"));
    let mut labels = String::from("class\n");
    for i in 0..60 {
        for step in [2, 6, 14] {
            writeln!(edges, "{i},{}", (i + step) % 60).unwrap();
        }
        let noise = (i * 37 % 60) as f64 / 60.0;
        writeln!(features, "{},{noise}", noise + (i % 2) as f64).unwrap();
        writeln!(labels, "{}", if i % 7 == 3 { -1 } else { i % 2 }).unwrap();
    }
    edges += "5,5\n0,2\n";
    for (name, text) in [
        ("edges", &edges),
        ("features", &features),
        ("labels", &labels),
    ] {
        std::fs::write(folder.join(format!("{name}.csv")), text).unwrap();
    }
    let graph = [
        "init",
        "edges.csv",
        "--features",
        "features.csv",
        "--labels",
    ];
    let args = [&graph[..], &["labels.csv"]].concat();
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "60 nodes, 182 edges",
        "every one is taken both ways",
        "1 edge from a node to itself",
    ] {
        assert!(stdout.contains(part), "{stdout}");
    }
    let draft = text(folder.join("edges.toml"));
    for part in [
        "undirected = true",
        "self_loops = \"keep\"",
        "duplicates = \"drop\"",
    ] {
        assert!(draft.contains(part), "{draft}");
    }
    let (code, stdout, stderr) = run(folder, &["train", "edges.toml", "--epochs", "60"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("test_accuracy"), "{stdout}");
    std::fs::write(folder.join("words.csv"), labels.replace("-1", "unknown")).unwrap();
    let args = [&graph[..], &["words.csv", "--force"]].concat();
    let (code, _, stderr) = run(folder, &args);
    assert!(
        code == 2 && stderr.contains("words.csv") && stderr.contains("\"unknown\""),
        "{stderr}"
    );
}

#[test]
fn every_help_page_has_examples_and_fits_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let help = |args: &[&str]| {
        let mut command = retrograd(folder.path());
        let output = command
            .args(args)
            .arg("--help")
            .env("COLUMNS", "80")
            .output();
        let (code, stdout, _) = parts(output.unwrap());
        assert_eq!(code, 0);
        assert!(
            !stdout.contains('\x1b'),
            "colours elsewhere than on a terminal"
        );
        for line in stdout.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
        assert!(stdout.contains("Examples:\n"), "{args:?}: {stdout}");
        stdout
    };
    let top = help(&[]);
    assert!(top.contains("Exit codes:") && top.contains("130"), "{top}");
    let commands = [
        "init",
        "train",
        "verify",
        "run",
        "export",
        "check",
        "reproduce",
        "devices",
        "bench",
        "completions",
        "man",
    ];
    for command in commands {
        assert!(top.contains(&format!("\n  {command} ")), "{command}: {top}");
        help(&[command]);
    }
}

#[test]
fn names_that_are_almost_right_get_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "epochs = 1\noptimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    let good = text(folder.join("test.toml"));
    for (from, to, meant) in [
        ("\"gelu\"", "\"gleu\"", "gelu"),
        ("out = 16", "otu = 16", "out"),
        ("samples", "smaples", "samples"),
        ("batch", "batsh", "batch"),
        ("\"network\"", "\"netwrok\"", "network"),
    ] {
        std::fs::write(folder.join("bad.toml"), good.replacen(from, to, 1)).unwrap();
        let (code, _, stderr) = run(folder, &["train", "bad.toml"]);
        assert_eq!(code, 2);
        let hint = format!("did you mean \"{meant}\"");
        assert!(stderr.contains(&hint), "{to}: {stderr}");
    }
    for (args, hint) in [
        (&["trian", "moons"][..], "'train'"),
        (&["train", "moons", "--epocs", "1"], "'--epochs'"),
        (&["train", "mooons"], "\"moons\""),
        (&["bench", "mlp-265"], "\"mlp-256\""),
        (&["verify", "--device", "gpuu"], "'gpu'"),
    ] {
        let (code, _, stderr) = run(folder, args);
        assert_eq!(code, 2, "{args:?}");
        assert!(stderr.contains(hint), "{args:?}: {stderr}");
    }
}

#[test]
fn logs_are_lines_of_json_or_nothing_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "epochs = 3\noptimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    let args = ["train", "test.toml", "--out", "a", "--log-format", "json"];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("steps                30\n"), "{stdout}");
    let events: Vec<Value> = stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let named =
        |name: &str| -> Vec<&Value> { events.iter().filter(|e| e["event"] == name).collect() };
    assert_eq!(named("start")[0]["steps"], 30);
    let epochs = named("epoch");
    assert_eq!(epochs.len(), 3);
    assert!(epochs[0]["metrics"]["validation_loss"].is_number());
    assert_eq!(named("verified")[0]["failed"], 0);
    assert_eq!(events.last().unwrap()["event"], "done");
    assert_eq!(named("done")[0]["summary"]["steps"], 30);
    assert!(events.iter().all(|e| e["time"].is_number()));

    let args = ["train", "test.toml", "--out", "a", "--log-format", "json"];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 2);
    // After what was found out about the data.
    let error: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&error["event"], &error["code"]),
        (&"error".into(), &2.into())
    );
    let (code, _, stderr) = run(folder, &["train", "--nonsense", "--log-format", "json"]);
    assert_eq!(code, 2);
    serde_json::from_str::<Value>(stderr.trim()).unwrap();

    let (code, stdout, stderr) = run(folder, &["train", "test.toml", "--out", "b", "--quiet"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("report"), "{stdout}");
}

#[test]
fn a_run_is_verified_in_its_summary_and_report_unless_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    experiment(
        folder,
        "epochs = 2\noptimizer = { kind = \"adam\", lr = 0.01 }\n",
    );
    let (code, _, stderr) = run(folder, &["train", "test.toml", "--out", "a"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("verified in"), "{stderr}");
    let summary: Value = serde_json::from_str(&text(folder.join("a/summary.json"))).unwrap();
    let verification = &summary["verification"];
    assert_eq!(
        verification["checks"], verification["passed"],
        "{verification}"
    );
    let links = verification["links"].as_array().unwrap();
    let names: Vec<_> = links.iter().map(|l| l["link"].as_str().unwrap()).collect();
    let expected = [
        "1 differences",
        "3 cpu f32",
        "5 threads",
        "5 processes",
        "5 machines",
    ];
    assert_eq!(names, expected);
    let report = text(folder.join("a/report.html"));
    for part in [
        "Verification of this model",
        "checks passed",
        "forward and loss",
        ">backward<",
        "prefers-color-scheme",
        "retrograd train --resume a --epochs 4",
        "@software{retrograd",
    ] {
        assert!(report.contains(part), "no {part:?}");
    }
    // Nothing is loaded from anywhere.
    assert!(!report.contains("src=\"http") && !report.contains("url(http"));
    let args = ["train", "test.toml", "--out", "b", "--no-verify"];
    let (code, stdout, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        !stdout.contains("verif") && !stderr.contains("verif"),
        "{stdout}{stderr}"
    );
    assert!(text(folder.join("b/report.html")).contains("--no-verify"));
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, stdout, stderr) = run(folder, &["completions", shell]);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.contains("init") && stdout.contains("no-verify"),
            "{shell}"
        );
    }
    let (code, _, stderr) = run(folder, &["man", "--out", "pages"]);
    assert_eq!(code, 0, "{stderr}");
    for page in [
        "retrograd",
        "retrograd-init",
        "retrograd-train",
        "retrograd-man",
    ] {
        let page = text(folder.join(format!("pages/{page}.1")));
        assert!(page.contains(".TH") && page.contains("Examples:"), "{page}");
    }
}

#[test]
fn predictions_are_for_every_row_and_written_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut table = String::from("id,a,b,y\n");
    for i in 0..60 {
        let a = i as f64 / 10.0;
        writeln!(table, "s{i},{a},{},{}", 6.0 - a, 3.0 * a).unwrap();
    }
    std::fs::write(folder.join("t.csv"), &table).unwrap();
    let experiment = "name = 't'\n[data]\nfile = 't.csv'\ntargets = 'y'\nmissing = 'drop'\n\
                      ignore = ['id']\n[model]\nfamily = 'network'\n\
                      layers = [{ kind = 'dense', out = 1 }]\n[train]\nepochs = 2\nbatch = 16\n\
                      optimizer = { kind = 'adam', lr = 0.01 }\n";
    std::fs::write(folder.join("t.toml"), experiment).unwrap();
    let args = ["train", "t.toml", "--no-verify"];
    let (code, _, stderr) = run(folder, &args);
    assert_eq!(code, 0, "{stderr}");

    // Without a target: predicted. Without an input: an empty cell. All of them, in order.
    let new = "y,id,a,b\n1.5,one,0.5,5.5\n,two,1,5\n3,three,,4\n,four,2,4\n";
    std::fs::write(folder.join("new.csv"), new).unwrap();
    let keep = [
        "run", "runs/t", "new.csv", "--out", "said.csv", "--keep", "id", "y",
    ];
    let (code, stdout, stderr) = run(folder, &keep);
    assert_eq!(code, 0, "{stderr}");
    let said = text(folder.join("said.csv"));
    assert_eq!(column(&said, "id"), ["one", "two", "three", "four"]);
    assert_eq!(column(&said, "y"), ["1.5", "", "3", ""]);
    let predicted = column(&said, "predicted_y");
    assert_eq!(predicted[2], "");
    for row in [0, 1, 3] {
        predicted[row].parse::<f32>().unwrap();
    }
    let all = stdout + &stderr;
    assert!(all.contains("1 of 4 rows lack an input"), "{all}");
    assert!(all.contains("measured on the 1 of 4 rows"), "{all}");

    let before = text(folder.join("new.csv"));
    for (out, part) in [
        ("new.csv", "new.csv is an input"),
        ("./new.csv", "is an input"),
        ("said.csv", "said.csv is there already"),
        ("runs", "runs is a folder"),
    ] {
        let (code, _, stderr) = run(folder, &["run", "runs/t", "new.csv", "--out", out]);
        assert_eq!(code, 2);
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(text(folder.join("new.csv")), before);
    assert_eq!(text(folder.join("said.csv")), said);
    let (code, _, stderr) = run(folder, &["run", "runs/t", "new.csv", "--keep", "idd"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("did you mean \"id\"?"), "{stderr}");
    assert!(!folder.join("new.predictions.csv").exists());
    let force = ["run", "runs/t", "new.csv", "--out", "said.csv", "--force"];
    assert_eq!(run(folder, &force).0, 0);
    assert!(text(folder.join("said.csv")) != said);
}
