//! Children that end with the process that started them.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Kills a child when this process ends, also by SIGKILL or an abort, where no destructor runs.
///
/// A shell waits at a pipe that only this process can write to: it reads to the end when this process is
/// gone. Keep the guard until the child was waited for; until then no other process has its id.
#[derive(Debug)]
pub struct Guard(Child);

/// Signals of a terminal go to all of its processes, and the shell must outlive those it guards.
const SCRIPT: &str = "trap '' INT TERM HUP; read -r _; kill -KILL \"$0\"";

impl Guard {
    /// Guards the child with this process id.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn of(pid: u32) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, &pid.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot run sh")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It is killed before its input is closed. Gone already is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const CHILD: &str = "TIDEMARK_TEST_GUARD";

    /// The child of the next test: starts a process that would outlive it, and aborts.
    #[test]
    fn child_aborts() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let outliving = Command::new("sleep").arg("3600").spawn().unwrap();
        let _guard = Guard::of(outliving.id()).unwrap();
        std::process::abort();
    }

    #[test]
    fn a_child_ends_with_an_aborted_parent() {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::tests::child_aborts", "--nocapture"])
            .env(CHILD, "")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = parent.stdout.take().unwrap();
        assert!(!parent.wait().unwrap().success());
        // The output is at its end when no process has it any more.
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(output.read_to_end(&mut Vec::new())));
        ended.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    }
}
