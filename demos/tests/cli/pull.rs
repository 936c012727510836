//! `pull`, from a server on this machine.

use crate::support::{Said, run, tallow};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

const MODEL: &str = "hf:me/m/a.gguf";

/// A server that has one file. With `stall`, the second half of it never comes.
fn serve(body: Vec<u8>, stall: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let body = body.clone();
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                let request = lines.next().unwrap()?;
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                if !request.contains("/me/m/resolve/main/a.gguf ") {
                    return stream
                        .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                }
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                )?;
                if request.starts_with("HEAD") {
                    return Ok(());
                }
                if stall {
                    stream.write_all(&body[..body.len() / 2])?;
                    std::thread::sleep(Duration::from_secs(60));
                }
                stream.write_all(&body)
            });
        }
    });
    endpoint
}

#[test]
fn the_last_line_is_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let body: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    let endpoint = serve(body.clone(), false);
    let online = |args: &[&str]| -> Said {
        let mut command = tallow(folder.path());
        command.args(args).env("HF_HUB_OFFLINE", "0").env("HF_ENDPOINT", &endpoint).output().unwrap().into()
    };
    let said = online(&["pull", MODEL]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let path = said.stdout.lines().last().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), body);
    assert!(said.stderr.contains("fetching 100.00 kB"), "{said:?}");
    // Now it lies in the cache: no network, nothing to tell.
    let again = run(folder.path(), ["pull", MODEL]);
    assert_eq!((again.code, again.stdout.as_str(), again.stderr.as_str()), (Some(0), said.stdout.as_str(), ""));

    let said = online(&["pull", "hf:me/m/b.gguf"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.lines().last().unwrap().starts_with("error: ") && said.stderr.contains("404"), "{said:?}");
}

#[test]
fn a_local_path_is_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    std::fs::write(&path, "x").unwrap();
    let said = run(folder.path(), ["pull", path.to_str().unwrap()]);
    assert_eq!((said.code, said.stdout.trim()), (Some(0), path.to_str().unwrap()));
}

#[cfg(unix)]
#[test]
fn it_can_be_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = serve(vec![7; 1 << 20], true);
    let mut command = tallow(folder.path());
    command.args(["pull", MODEL]).env("HF_HUB_OFFLINE", "0").env("HF_ENDPOINT", &endpoint);
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("fetching "), "{line}");
    crate::support::interrupt(&child);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut rest).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (Some(130), ""), "{rest}");
    assert!(rest.contains("run again to resume"), "{rest}");
    let finished = walk(folder.path()).into_iter().filter(|name| name.ends_with("a.gguf")).count();
    assert_eq!(finished, 0, "half a file must not look like one");
}

/// All files below a folder.
#[cfg(unix)]
fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path.display().to_string()),
        }
    }
    files
}
