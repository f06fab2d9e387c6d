//! What the process itself needs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Connections, Source};

/// `[process]`, `[server]` and `[data]`.
#[derive(Debug, Clone)]
pub struct Process {
    /// Names this process among those of its installation: its memberships and transactions.
    pub name: String,
    /// How many threads share the partitions of each stage in this process.
    pub workers: u32,
    /// Where the API listens.
    pub listen: Option<SocketAddr>,
    /// What the API's clients may leave open.
    pub connections: Connections,
    /// Folder of the embedded back ends.
    pub data_dir: PathBuf,
    /// How long stopping may take.
    pub stop_deadline: Duration,
}

impl Process {
    /// Reads the sections.
    #[must_use]
    pub fn read(source: &mut Source) -> Self {
        let mut process = source.section("process");
        let name = process.text("name");
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 100 || !name.chars().all(legal) {
            process.problem("name", "must be 1 to 100 letters, digits, '.', '_' and '-'");
        }
        let workers = u32::try_from(process.integer("workers", 1..=64)).unwrap_or(1);
        process.finish();
        let mut server = source.section("server");
        let listen = server.parsed("listen");
        let stop_deadline = server.duration("stop_deadline");
        let connections = Connections::read(&mut server, stop_deadline);
        server.finish();
        let mut data = source.section("data");
        let data_dir = PathBuf::from(data.text("dir"));
        data.finish();
        Self { name, workers, listen, connections, data_dir, stop_deadline }
    }
}
