//! Children that end with the process that started them.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A terminal signals all of its processes; the shell ignores that, as it must outlive the process that started it.
const SCRIPT: &str = "trap '' INT TERM HUP; read -r _; kill -s KILL -- \"$0\"";

/// Kills a child when this process ends, also by SIGKILL or an abort, where no destructor runs.
///
/// A shell waits at a pipe that only this process can write to: it reads EOF when this process is
/// gone. Keep the guard until the child was waited for and no longer, as its id may be reused afterwards.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Guards the child with this process id.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn of(pid: u32) -> Result<Self> {
        Self::of_target(&pid.to_string())
    }

    /// Guards the child with this process id, which leads a group of processes, and all of that group.
    ///
    /// # Errors
    /// If there is no shell.
    pub fn of_group(pid: u32) -> Result<Self> {
        Self::of_target(&format!("-{pid}"))
    }

    fn of_target(target: &str) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, target]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot run sh")?))
    }

    /// Kills its target now.
    pub fn kill(mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The shell is killed before its input is closed, so that it kills no target. It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_child_is_killed_when_the_pipe_is_closed() {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        // Closes the pipe, as the kernel does when this process ends.
        Guard::of(child.id()).unwrap().kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
