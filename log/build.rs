//! Compiles what `.cargo/config.toml` links in place of a function of librdkafka: see `src/kafka/leader_change.c`.

fn main() {
    let file = "src/kafka/leader_change.c";
    println!("cargo::rerun-if-changed={file}");
    // Nothing in Rust refers to it, so that the linker would leave it out.
    cc::Build::new()
        .file(file)
        .link_lib_modifier("+whole-archive")
        .compile("tidemark_leader_change");
}
