//! `retrograd playground`

use crate::exit::Result;

/// Opens the playground in the browser: train, watch and verify small models in a page.
///
/// The page is part of this program and is served to this machine alone; nothing is sent anywhere. Ctrl-C ends
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  retrograd playground
  retrograd playground --port 8000 --no-open")]
pub struct PlaygroundArgs {
    /// The port on this machine; any free one by default.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Only says the address.
    #[arg(long)]
    no_open: bool,
}

#[cfg(not(feature = "playground"))]
pub fn run(args: PlaygroundArgs) -> Result {
    let _ = (args.port, args.no_open);
    anyhow::bail!(
        "this program was built without the playground; in the source's folder, web/build makes the page and \
         `cargo install --path crates/retrograd-cli --features playground` a program that has it"
    )
}

#[cfg(feature = "playground")]
pub fn run(args: PlaygroundArgs) -> Result {
    served::run(&args)
}

#[cfg(feature = "playground")]
mod served {
    use std::process::{Command, Stdio};

    use anyhow::{Context, anyhow};
    use include_dir::{Dir, include_dir};
    use tiny_http::{Header, Method, Request, Response, Server};

    use super::PlaygroundArgs;
    use crate::exit::{Outcome, Result};
    use crate::log;

    /// What web/build made.
    static PAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../web/dist");

    /// With these the page may stop its worker in the middle, and may ask nobody else for anything.
    const HEADERS: [(&str, &str); 6] = [
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Embedder-Policy", "require-corp"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        (
            "Content-Security-Policy",
            concat!(
                "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; ",
                "connect-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; ",
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
        ),
    ];

    pub fn run(args: &PlaygroundArgs) -> Result {
        let server = Server::http(("127.0.0.1", args.port))
            .map_err(|error| anyhow!("{error}"))
            .with_context(|| format!("--port {}: cannot listen on it", args.port))?;
        let port = server.server_addr().to_ip().map_or(args.port, |a| a.port());
        let address = format!("http://127.0.0.1:{port}/");
        println!("{address}");
        if !args.no_open && !open(&address) {
            log::note("no browser was found; open the address above in one");
        }
        for request in server.incoming_requests() {
            answer(request);
        }
        Ok(Outcome::Done)
    }

    /// Asks the system for its browser.
    fn open(address: &str) -> bool {
        let program = match std::env::consts::OS {
            "macos" => "open",
            "windows" => "explorer",
            _ => "xdg-open",
        };
        let quiet = || Stdio::null();
        let mut command = Command::new(program);
        command
            .arg(address)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet());
        command.spawn().is_ok()
    }

    fn answer(request: Request) {
        let path = request.url().split(['?', '#']).next().unwrap_or_default();
        let path = match path.trim_start_matches('/') {
            "" => "index.html",
            path => path,
        };
        let mut headers: Vec<Header> = HEADERS.iter().filter_map(|&(n, v)| header(n, v)).collect();
        // A name that another machine gave this one is no way in.
        let host = request.headers().iter().find(|h| h.field.equiv("Host"));
        let local = host.is_some_and(|h| {
            let host = h.value.as_str();
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            matches!(name, "127.0.0.1" | "localhost" | "[::1]")
        });
        let (status, body) = match PAGE.get_file(path) {
            _ if !local => (403, &b"this page is for this machine alone"[..]),
            _ if !matches!(request.method(), Method::Get | Method::Head) => {
                (405, &b"files can only be read"[..])
            }
            Some(file) => {
                headers.extend(header("Content-Type", kind(path)));
                (200, file.contents())
            }
            None => (404, &b"there is no such file"[..]),
        };
        let length = Some(body.len());
        // Where the browser has gone there is nobody to tell.
        let _ = request.respond(Response::new(status.into(), headers, body, length, None));
    }

    fn header(name: &str, value: &str) -> Option<Header> {
        Header::from_bytes(name.as_bytes(), value.as_bytes()).ok()
    }

    fn kind(path: &str) -> &'static str {
        match path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("wasm") => "application/wasm",
            _ => "application/octet-stream",
        }
    }
}
