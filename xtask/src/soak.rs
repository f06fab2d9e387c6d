//! Random cases for a night: new ones in each round, unlike `cargo xtask test`.

use anyhow::{Context, Result};

use crate::shell::{self, cargo};

/// Seeds of `ingest/src/rehearsal.rs` and `ingest/src/simulation/checks.rs` in a round.
const REHEARSALS: u64 = 50;
/// Cases of each property of `tests/machine_properties` and of `ingest/src/simulation.rs` in a round.
const CASES: &str = "100000";
/// Requests of `api/tests/http/fuzz.rs` in a round.
const REQUESTS: &str = "200000";

/// Plays rounds of random cases, each with the next seed, until one fails or it is interrupted.
pub(crate) fn run(seed: &str) -> Result<()> {
    let first: u32 = seed.parse().context("the seed is a number")?;
    for seed in first.. {
        let seed = u64::from(seed);
        let first = seed * REHEARSALS;
        let rehearsals = format!("{first}..{}", first + REHEARSALS);
        let parts: [&[&str]; 3] = [
            &["tidemark-tests", "--test", "machine_properties"],
            &["tidemark-ingest", "--lib", "--", "rehearsal", "simulation"],
            &["tidemark-api", "--test", "http", "fuzz"],
        ];
        for arguments in parts {
            let mut command = cargo();
            command.args(["test", "--quiet", "--package"]).args(arguments);
            command.env("PROPTEST_RNG_SEED", seed.to_string());
            command.env("TIDEMARK_TEST_CASES", CASES);
            command.env("TIDEMARK_FAULT_SEEDS", &rehearsals);
            command.envs([
                ("TIDEMARK_FUZZ_REQUESTS", REQUESTS),
                ("TIDEMARK_FUZZ_SEED", &seed.to_string()),
            ]);
            shell::run(&mut command)?;
        }
        shell::print(&format!("seed {seed}: green"));
    }
    Ok(())
}
