//! Compiles the C function that `.cargo/config.toml` links in place of a function of librdkafka:
//! see `src/kafka/leader_change.c`.

#[expect(clippy::disallowed_methods, reason = "not configuration: cargo's word for the target")]
fn main() {
    // Other systems' linkers do not know `--wrap`.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let file = "src/kafka/leader_change.c";
    println!("cargo::rerun-if-changed={file}");
    // No Rust code calls its function, so the linker would omit the object otherwise.
    cc::Build::new()
        .file(file)
        .link_lib_modifier("+whole-archive")
        .compile("tidemark_leader_change");
}
