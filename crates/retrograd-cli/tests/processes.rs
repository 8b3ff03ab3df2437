//! Training shared by processes that `mpirun` starts: the same bits for any number of them, and one end
//! for all. Built without the feature `mpi`, the command says that it can't.
#![cfg(unix)]

mod common;

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_a_process_among_others_says_so_and_trains_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = common::experiment(
        folder.path(),
        "epochs = 1\noptimizer = { kind = \"sgd\", lr = 0.1 }",
    );
    let launchers = [
        ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
        ["PMI_SIZE", "PMI_RANK"],
        ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID"],
    ];
    for [size, rank] in launchers {
        let started = |of: &str, number: &str| {
            let mut command = common::retrograd(folder.path());
            let file = file.to_str().unwrap();
            command.args(["train", file, "--no-verify"]);
            command.env(size, of).env(rank, number);
            common::parts(command.output().unwrap())
        };
        let (code, _, said) = started("4", "0");
        assert_eq!(code, 2, "{said}");
        for part in ["one of 4 processes", size, "--features mpi"] {
            assert!(said.contains(part), "{said}");
        }
        // One of them speaks.
        assert_eq!(started("4", "3"), (2, String::new(), String::new()));
        assert!(!folder.path().join("runs").exists());
    }
    // A process that is alone trains, and so does the script of a job.
    let mut command = common::retrograd(folder.path());
    command.args([
        "train",
        file.to_str().unwrap(),
        "--no-verify",
        "--out",
        "one",
    ]);
    command.env("PMI_SIZE", "1").env("PMI_RANK", "0");
    assert_eq!(common::parts(command.output().unwrap()).0, 0);
    let mut command = common::retrograd(folder.path());
    command.args([
        "train",
        file.to_str().unwrap(),
        "--no-verify",
        "--out",
        "two",
    ]);
    command
        .env("SLURM_STEP_NUM_TASKS", "4")
        .env("SLURM_PROCID", "0");
    command.env("SLURM_STEP_ID", "batch");
    assert_eq!(common::parts(command.output().unwrap()).0, 0);
}

#[cfg(feature = "mpi")]
mod mpi {
    use super::common::mpi::{kills, mpirun, train};
    use super::common::{parts, state};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    fn model(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        folder.join(format!("../../tests/machines/models/{name}.toml"))
    }

    /// A run's figures without its times.
    fn figures(run: &Path) -> String {
        let text = std::fs::read_to_string(run.join("summary.json")).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let object = json.as_object_mut().unwrap();
        object
            .retain(|name, _| !["seconds", "ms_per_step", "verification"].contains(&name.as_str()));
        assert!(object.contains_key("weights_sha256"), "{object:?}");
        json.to_string()
    }

    /// A small experiment with shards, in the folder.
    fn with_shards(folder: &Path, name: &str, shards: usize, batch: usize) -> String {
        let text = std::fs::read_to_string(model(name)).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("batch ="));
        let text = lines.collect::<Vec<_>>().join("\n");
        let path = folder.join(format!("{name}.toml"));
        std::fs::write(
            &path,
            format!("{text}\nbatch = {batch}\nshards = {shards}\n"),
        )
        .unwrap();
        path.display().to_string()
    }

    /// Rings and stars in TUDataset's text, and one ring of 60 nodes whose halves are to be told apart from
    /// samples of what is around them.
    fn graphs(folder: &Path) -> [String; 2] {
        let [mut edges, mut indicator, mut classes, mut labels] = <[String; 4]>::default();
        let mut first = 1;
        for graph in 1..=24 {
            let nodes = 4 + graph / 3;
            for node in 0..nodes {
                let other = if graph % 2 == 0 {
                    (node + 1) % nodes
                } else {
                    0
                };
                if other != node {
                    let (a, b) = (first + node, first + other);
                    edges += &format!("{a}, {b}\n{b}, {a}\n");
                }
                indicator += &format!("{graph}\n");
                labels += &format!("{}\n", node % 2);
            }
            first += nodes;
            classes += &format!("{}\n", graph % 2);
        }
        let many = folder.join("RS");
        std::fs::create_dir(&many).unwrap();
        for (end, text) in [
            ("A", edges),
            ("graph_indicator", indicator),
            ("graph_labels", classes),
            ("node_labels", labels),
        ] {
            std::fs::write(many.join(format!("RS_{end}.txt")), text).unwrap();
        }
        let ring: String = (0..60).map(|i| format!("{i},{}\n", (i + 1) % 60)).collect();
        let half: String = (0..60).map(|i| format!("{}\n", i / 30)).collect();
        std::fs::write(
            folder.join("ring.csv"),
            "source,target\n".to_string() + &ring,
        )
        .unwrap();
        std::fs::write(folder.join("half.csv"), "class\n".to_string() + &half).unwrap();
        let layers = |first: &str, last: &str| {
            format!(
                "layers = [{first}, {{ kind = \"sage\", out = 8 }}, {{ kind = \"relu\" }}, \
                 {{ kind = \"dropout\", p = 0.2 }}, {last}]\n"
            )
        };
        let train = "[train]\nepochs = 3\nclip = 0.5\noptimizer = { kind = \"adam\", lr = 0.01 }\n";
        let pooled = "{ kind = \"mean_pool\" }, { kind = \"dense\", out = 2 }";
        let graphs = layers("{ kind = \"gin\", out = 8 }", pooled);
        let nodes = layers(
            "{ kind = \"embedding\", vocabulary = 60, out = 6 }",
            "{ kind = \"gcn\", out = 2 }",
        );
        let write = |name: &str, model: String, data: &str| {
            let text = format!(
                "name = \"{name}\"\n[model]\nfamily = \"graph\"\n{model}[data]\n{data}{train}"
            );
            let path = folder.join(format!("{name}.toml"));
            std::fs::write(&path, text + "batch = 8\nshards = 4\n").unwrap();
            path.display().to_string()
        };
        [
            write(
                "graphs",
                format!("features = 2\n{graphs}"),
                "kind = \"tudataset\"\nname = \"RS\"\nfolder = \"RS\"\nfolds = 4\nfold = 0\n",
            ),
            write(
                "neighbours",
                nodes,
                "kind = \"edge_list\"\nedges = \"ring.csv\"\nlabels = \"half.csv\"\nundirected = true\n\
                 neighbours = [2, 2]\n",
            ),
        ]
    }

    #[test]
    fn one_two_three_and_four_processes_give_the_same_bits_for_every_family() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let of_models = [
            ("network", 5, 40),
            ("kan", 8, 64),
            ("cnn", 6, 32),
            ("denoise", 4, 4),
            ("automaton", 4, 5),
            ("text", 4, 16),
        ];
        let mut files: Vec<(&str, String)> = of_models
            .map(|(name, shards, batch)| (name, with_shards(folder, name, shards, batch)))
            .to_vec();
        files.extend(["graphs", "neighbours"].into_iter().zip(graphs(folder)));
        for (name, file) in &files {
            let mut first = None;
            for processes in 1..=4 {
                let out = format!("{name}-{processes}");
                let args = [&file[..], "--no-verify", "--out", &out];
                let (code, printed, said) = train(folder, processes, &args);
                assert_eq!(code, 0, "{name}, {processes}: {said}");
                // Rank 0 alone has printed.
                assert_eq!(printed.matches("train_loss").count(), 1, "{printed}");
                let run = folder.join(out);
                let weights = std::fs::read(run.join("model.safetensors")).unwrap();
                let outcome = (weights, state(&run), figures(&run));
                let first = first.get_or_insert_with(|| outcome.clone());
                assert!(outcome == *first, "{name}: {processes} processes");
            }
        }
        // Two threads in each: shards of a process side by side, sent as they are complete.
        let file = folder.join("kan.toml").display().to_string();
        let args = [
            &file[..],
            "--no-verify",
            "--out",
            "threads",
            "--threads",
            "2",
        ];
        let (code, _, said) = train(folder, 2, &args);
        assert_eq!(code, 0, "{said}");
        // The command without mpirun, with the key in the file.
        let file = folder.join("kan.toml").display().to_string();
        let args = ["train", &file, "--no-verify", "--out", "kan-alone"];
        let (code, _, said) = super::common::run(folder, &args);
        assert_eq!(code, 0, "{said}");
        let weights =
            |run: &str| std::fs::read(folder.join(run).join("model.safetensors")).unwrap();
        assert!(weights("kan-alone") == weights("kan-4"));
        assert!(weights("threads") == weights("kan-4"));
    }

    /// Steps of a millisecond or so, eight an epoch, with a checkpoint every twenty; enough of them to be
    /// hit in the middle so often.
    fn long(folder: &Path, hits: u64) -> (String, u64) {
        let epochs = 60 + 20 * hits;
        let text = format!(
            "name = \"long\"\n[model]\nfamily = \"network\"\nlayers = [\
             {{ kind = \"dense\", out = 192 }}, {{ kind = \"gelu\" }}, {{ kind = \"dropout\", p = 0.1 }}, \
             {{ kind = \"dense\", out = 192 }}, {{ kind = \"gelu\" }}, {{ kind = \"dense\", out = 2 }}]\n\
             [data]\ngenerate = {{ name = \"two_moons\", samples = 640 }}\n\
             [train]\nepochs = {epochs}\nbatch = 64\nshards = 4\nevaluate_every = 10\n\
             checkpoint_every = 20\noptimizer = {{ kind = \"adam\", lr = 0.003 }}\n"
        );
        let path = folder.join("long.toml");
        std::fs::write(&path, text).unwrap();
        (path.display().to_string(), 8 * epochs)
    }

    fn start(folder: &Path, processes: usize, args: &[&str]) -> Child {
        let mut command = mpirun(folder, processes);
        command
            .arg(env!("CARGO_BIN_EXE_retrograd"))
            .arg("train")
            .args(args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn step(run: &Path) -> u64 {
        let progress = &state(run).metadata["progress"];
        let progress: serde_json::Value = serde_json::from_str(progress).unwrap();
        progress["step"].as_u64().unwrap()
    }

    fn wait_for_step(run: &Path, child: &mut Child, after: u64) {
        let deadline = Instant::now() + Duration::from_secs(150);
        while !run.join("checkpoint.safetensors").exists() || step(run) <= after {
            assert!(Instant::now() < deadline, "no step in time");
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended by itself: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The processes of the command that a launcher has started.
    fn ranks(launcher: u32) -> Vec<u32> {
        let children = |of: u32| -> Vec<u32> {
            let path = format!("/proc/{of}/task/{of}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect()
        };
        // `timeout` starts mpirun, which starts them.
        children(launcher).into_iter().flat_map(children).collect()
    }

    fn signal(pid: u32, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    fn ends_within(child: Child, seconds: u64) -> String {
        let start = Instant::now();
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(seconds), "it took {took:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    #[test]
    fn a_killed_rank_ends_all_and_another_number_goes_on_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (file, steps) = long(folder, kills());
        let (code, _, said) = train(folder, 1, &[&file, "--no-verify", "--out", "whole"]);
        assert_eq!(code, 0, "{said}");
        let run = folder.join("parts");
        for time in 0..kills() as usize {
            let processes = [3, 2, 4, 1][time % 4];
            let args = match time {
                0 => vec![&file[..], "--no-verify", "--out", "parts"],
                _ => vec!["--no-verify", "--resume", "parts"],
            };
            let before = if time == 0 { 0 } else { step(&run) };
            let mut child = start(folder, processes, &args);
            wait_for_step(&run, &mut child, before);
            // A time, and a rank, that nobody chose.
            let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let drawn = clock.unwrap().subsec_nanos();
            std::thread::sleep(Duration::from_micros(u64::from(drawn) % 20_000));
            let ranks = ranks(child.id());
            assert!(!ranks.is_empty());
            signal(ranks[drawn as usize % ranks.len()], "-9");
            let said = ends_within(child, 10);
            assert!(said.contains("signal 9"), "{said}");
            if step(&run) + 100 >= steps {
                break;
            }
        }
        let (code, _, said) = train(folder, 2, &["--no-verify", "--resume", "parts"]);
        assert_eq!(code, 0, "{said}");
        let whole = folder.join("whole");
        assert!(state(&run) == state(&whole));
        assert_eq!(figures(&run), figures(&whole));
    }

    #[test]
    fn a_signal_to_mpirun_saves_and_the_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (file, _) = long(folder, 20);
        let run = folder.join("run");
        let mut child = start(folder, 3, &[&file, "--no-verify", "--out", "run"]);
        wait_for_step(&run, &mut child, 40);
        let launcher = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
        signal(launcher.unwrap().trim().parse().unwrap(), "-INT");
        let said = ends_within(child, 10);
        assert_eq!(said.matches("the state is saved").count(), 1, "{said}");
        assert!(said.contains("--resume run"), "{said}");
        let (code, _, said) = train(folder, 2, &["--no-verify", "--resume", "run"]);
        assert_eq!(code, 0, "{said}");
        let (code, _, said) = train(folder, 1, &[&file, "--no-verify", "--out", "whole"]);
        assert_eq!(code, 0, "{said}");
        assert!(state(&run) == state(&folder.join("whole")));
    }

    /// What one process alone can't do ends all of them within seconds, with one message.
    #[test]
    fn a_failure_of_one_rank_is_said_once_by_rank_0() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let rows: String = (0..200).map(|i| format!("{i},{}\n", i % 7)).collect();
        let table = "x,y\n".to_string() + &rows;
        for host in ["good", "bad"] {
            std::fs::create_dir(folder.join(host)).unwrap();
        }
        std::fs::write(folder.join("good/rows.csv"), &table).unwrap();
        std::fs::write(
            folder.join("bad/rows.csv"),
            table.replace("17,", "17,many,"),
        )
        .unwrap();
        let text = "name = \"t\"\n[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 1 }]\n\
             [data]\nfile = \"rows.csv\"\ntargets = \"y\"\ntask = \"regression\"\n\
             [train]\nepochs = 2\nbatch = 64\nshards = 4\noptimizer = { kind = \"sgd\", lr = LR }\n";
        for host in ["good", "bad"] {
            let text = text.replace("LR", "0.01");
            std::fs::write(folder.join(host).join("t.toml"), text).unwrap();
        }
        // Rank 1 is where the file is another.
        let begin = Instant::now();
        let script = format!(
            "cd $([ $OMPI_COMM_WORLD_RANK = 1 ] && echo bad || echo good); exec {} train t.toml",
            env!("CARGO_BIN_EXE_retrograd")
        );
        let mut command = mpirun(folder, 3);
        let (code, printed, said) = parts(command.args(["sh", "-c", &script]).output().unwrap());
        assert_ne!(code, 0);
        assert_eq!(said.matches("error:").count(), 1, "{said}");
        assert!(
            said.contains("error: rank 1: ") && said.contains("rows.csv"),
            "{said}"
        );
        assert!(
            printed.is_empty() && !folder.join("good/runs").exists(),
            "{printed}"
        );
        // A learning rate that makes everything overflow: all see it, one says it.
        std::fs::write(folder.join("good/t.toml"), text.replace("LR", "1e30")).unwrap();
        let (code, _, said) = train(&folder.join("good"), 3, &["t.toml", "--out", "nan"]);
        assert_ne!(code, 0);
        assert_eq!(said.matches("error:").count(), 1, "{said}");
        assert!(said.contains("not finite"), "{said}");
        // Too many for the shards, and many runs at once.
        let (_, _, said) = train(&folder.join("good"), 3, &["t.toml", "--seeds", "2"]);
        assert!(
            said.contains("--seeds: many runs, and 3 processes"),
            "{said}"
        );
        let (_, _, said) = train(&folder.join("good"), 2, &["karate"]);
        assert!(said.contains("one graph in one piece"), "{said}");
        assert!(begin.elapsed() < Duration::from_secs(40));
    }

    /// A limit on the size of files is met as a full disk is. Files are rank 0's: where the disk of another
    /// rank is full, nothing is lost.
    #[test]
    fn a_full_disk_of_one_rank_keeps_the_checkpoint_and_another_number_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (file, _) = long(folder, 0);
        let limited = |rank: usize, args: &str| {
            let script = format!(
                "[ $OMPI_COMM_WORLD_RANK = {rank} ] && ulimit -f 8; exec '{}' train --no-verify {args}",
                env!("CARGO_BIN_EXE_retrograd")
            );
            let begin = Instant::now();
            let mut command = mpirun(folder, 3);
            let ended = parts(command.args(["sh", "-c", &script]).output().unwrap());
            assert!(begin.elapsed() < Duration::from_secs(60));
            ended
        };
        let (code, _, said) = limited(0, &format!("{file} --out none --epochs 4"));
        assert_ne!(code, 0);
        assert_eq!(said.matches("error:").count(), 1, "{said}");
        assert!(said.contains("cannot write"), "{said}");
        assert!(!folder.join("none").exists(), "nothing half begun is left");
        // Another rank's disk.
        let (code, _, said) = limited(1, &format!("{file} --out run --epochs 4"));
        assert_eq!(code, 0, "{said}");
        let run = folder.join("run");
        let before = state(&run);
        let (code, _, said) = limited(0, "--resume run --epochs 8");
        assert_ne!(code, 0);
        assert_eq!(said.matches("error:").count(), 1, "{said}");
        assert!(state(&run) == before, "what was there is whole");
        let (code, _, said) = train(
            folder,
            2,
            &["--no-verify", "--resume", "run", "--epochs", "8"],
        );
        assert_eq!(code, 0, "{said}");
        let args = [&file[..], "--no-verify", "--out", "whole", "--epochs", "8"];
        let (code, _, said) = train(folder, 1, &args);
        assert_eq!(code, 0, "{said}");
        assert!(state(&run) == state(&folder.join("whole")));
    }

    /// NaN in the data of one shard alone.
    #[test]
    fn nan_in_one_shard_is_said_once_and_the_last_good_state_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // A row so large that its square overflows, in the shard of one rank.
        let rows: String = (0..128)
            .map(|i| {
                format!(
                    "{},{}\n",
                    if i == 77 { 3e38 } else { f64::from(i % 9) },
                    i % 7
                )
            })
            .collect();
        std::fs::write(folder.join("rows.csv"), "x,y\n".to_string() + &rows).unwrap();
        let text = "name = \"t\"\n[model]\nfamily = \"network\"\nlayers = [{ kind = \"dense\", out = 1 }]\n\
             [data]\nfile = \"rows.csv\"\ntargets = \"y\"\ntask = \"regression\"\nnormalise = \"none\"\n\
             validation = 0.1\nshuffle = false\n\
             [train]\nepochs = 2\nbatch = 64\nshards = 4\noptimizer = { kind = \"sgd\", lr = 0.001 }\n";
        std::fs::write(folder.join("t.toml"), text).unwrap();
        let begin = Instant::now();
        for on_nan in ["stop", "skip"] {
            let args = ["t.toml", "--no-verify", "--out", on_nan, "--on-nan", on_nan];
            let (code, _, said) = train(folder, 3, &args);
            assert_eq!(code == 0, on_nan == "skip", "{said}");
            if on_nan == "stop" {
                assert_eq!(said.matches("error:").count(), 1, "{said}");
                assert!(said.contains("the loss") && said.contains("inf"), "{said}");
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn json_names_the_rank_and_the_number_of_processes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = with_shards(folder, "kan", 3, 64);
        let args = [
            &file[..],
            "--no-verify",
            "--out",
            "run",
            "--log-format",
            "json",
        ];
        let (code, _, said) = train(folder, 3, &args);
        assert_eq!(code, 0, "{said}");
        let mut events = 0;
        for line in said.lines() {
            let event: serde_json::Value = serde_json::from_str(line).expect(line);
            assert_eq!([&event["rank"], &event["processes"]], [0, 3], "{line}");
            events += 1;
        }
        assert!(events > 3, "{said}");
    }
}
