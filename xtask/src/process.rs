//! Running other programs: what runs is shown first, output passes through as it comes, standard input is empty.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The command as a reader would type it.
pub fn shown(command: &Command) -> String {
    let mut words = vec![program_name(command)];
    words.extend(command.get_args().map(|argument| {
        let text = argument.to_string_lossy();
        if text.contains(char::is_whitespace) { format!("'{text}'") } else { text.into_owned() }
    }));
    words.join(" ")
}

fn program_name(command: &Command) -> String {
    let path = std::path::Path::new(command.get_program());
    path.file_stem().unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

/// Runs a command whose output goes straight to the terminal; `Err` says how it failed.
pub fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", shown(command));
    let status = command.stdin(Stdio::null()).status().map_err(|error| cannot_start(command, &error))?;
    check(command, status)
}

/// Runs a command and gives back what it printed to standard output; standard error goes to the terminal.
pub fn output(command: &mut Command) -> Result<String, String> {
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    check(command, done.status)?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Runs a command, hands each line of its output to `line`, and prints those for which it returns true. A command that
/// takes longer than `limit` is ended, so that a hanging test cannot hang the run.
pub fn watch(command: &mut Command, limit: Duration, mut line: impl FnMut(&str) -> bool) -> Result<(), String> {
    println!("$ {}", shown(command));
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        forward(stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        forward(stderr, sender);
    }
    loop {
        match lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(text) => {
                if line(&text) {
                    println!("{text}");
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // Ending it can only fail when it has just ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("`{}` was ended after {} s", shown(command), limit.as_secs()));
            }
        }
    }
    let status = child.wait().map_err(|error| format!("`{}` was lost: {error}", shown(command)))?;
    check(command, status)
}

fn forward(stream: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut bytes) {
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(text).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("`{}` did not start: {error}", shown(command))
}

fn check(command: &Command, status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(command))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_its_folder_and_with_quotes() {
        let mut command = Command::new("/opt/tools/cargo");
        command.args(["test", "two words"]);
        assert_eq!(shown(&command), "cargo test 'two words'");
    }

    #[cfg(unix)]
    #[test]
    fn watching_sees_both_streams_and_the_exit_code() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let result = watch(&mut command, Duration::from_secs(20), |line| {
            seen.push(line.to_owned());
            false
        });
        seen.sort();
        assert_eq!(seen, ["err", "out"]);
        assert!(result.unwrap_err().contains('3'));
    }

    #[cfg(unix)]
    #[test]
    fn a_hanging_command_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("30");
        let start = Instant::now();
        let result = watch(&mut command, Duration::from_millis(100), |_| true);
        assert!(result.unwrap_err().contains("was ended"));
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
