//! Reading `[chains.*]`: accepted, refused and masked values.

use runtime::config::Problems;
use schemas::AddressFamily;

use super::*;

fn wallet() -> Wallet {
    Wallet {
        blockchain: Blockchain::Eth,
        address: "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed".parse().unwrap(),
        stablecoins: vec![Stablecoin::Usdt, Stablecoin::Dai],
        retired: false,
    }
}

fn read(text: &str) -> (Config, Vec<String>) {
    read_with(wallet(), text)
}

fn read_with(wallet: Wallet, text: &str) -> (Config, Vec<String>) {
    let mut source = Source::parse(Config::DEFAULTS, text, []);
    let config = Config::read(&mut source, &[wallet], Duration::from_secs(3600));
    let mut problems = source.finish().err().map_or_else(Vec::new, |Problems(lines)| lines);
    // Sections that other crates read are unknown here.
    problems.retain(|line| !line.ends_with(": unknown section"));
    (config, problems)
}

#[track_caller]
fn valid(text: &str) -> Config {
    let (config, problems) = read(text);
    assert_eq!(problems, Vec::<String>::new());
    config
}

#[track_caller]
fn good(text: &str) -> ChainConfig {
    valid(text).chains.remove(0)
}

#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    let (_, problems) = read(text);
    for line in expected {
        assert!(problems.iter().any(|problem| problem == line), "{line} not in {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
}

fn policy(text: &str) -> Policy {
    good(&format!("[chains.eth]\nrpc = [\"http://a\"]\nconfirmations = {text}")).policy
}

#[test]
fn an_endpoint_is_enough() {
    let config = valid("[chains.eth]\nrpc = [\"https://a.example/v3/k\", \"http://b\"]");
    let chain = &config.chains[0];
    assert_eq!((chain.blockchain, chain.chain_id), (Blockchain::Eth, 1));
    let names: Vec<_> = chain.endpoints.iter().map(|one| one.url.to_string()).collect();
    assert_eq!(names, ["https://a.example", "http://b"]);
    assert_eq!(chain.endpoints[0].weight, chain.endpoints[1].weight);
    assert_eq!((chain.reorg_window, chain.range_max, chain.lag), (128, 2000, 0));
    assert_eq!(chain.poll_interval, Duration::from_secs(12));
    assert_eq!(chain.wallets.len(), 1);
    assert_eq!(chain.contracts.len(), 3);
    assert_eq!(chain.start_block, None);
    assert_eq!(chain.match_window, Duration::from_secs(3600));
    assert_eq!(config.contracts(), chain.contracts);
}

#[test]
fn every_key_overrides() {
    let chain = good(
        r#"[chains.eth]
        rpc = ["http://127.0.0.1:8545"]
        chain_id = 31337
        confirmations = 3
        start_block = 7
        poll_interval = "250ms"
        request_timeout = "2s"
        range_max = 10
        reorg_window = 20
        lag = 2
        [[chains.eth.tokens]]
        coin = "USDT"
        contract = "0x00000000000000000000000000000000000000aa"
        decimals = 6
        [[chains.eth.tokens]]
        coin = "DAI"
        contract = "0x00000000000000000000000000000000000000bb"
        decimals = 18"#,
    );
    assert_eq!((chain.chain_id, chain.start_block, chain.lag), (31_337, Some(7), 2));
    assert_eq!((chain.range_max, chain.reorg_window), (10, 20));
    assert_eq!(chain.poll_interval, Duration::from_millis(250));
    assert_eq!(chain.request_timeout, Duration::from_secs(2));
    assert_eq!(chain.policy, Policy::flat(Some(3), None));
    let mut bytes = [0; 20];
    bytes[19] = 0xbb;
    let dai = chain.contracts[1];
    assert_eq!(dai.address, Address::new(AddressFamily::Evm, bytes));
    assert_eq!((dai.stablecoin, dai.decimals), (Stablecoin::Dai, 18));
}

#[test]
fn a_failed_check_waits_for_polls_of_half_a_minute() {
    assert_eq!(CHECK_WAIT_MAX.as_secs(), 30);
    for (poll_interval, polls) in [("250ms", CHECK_WAIT_POLLS_MAX), ("12s", 2), ("45s", 1)] {
        let text =
            format!("[chains.eth]\nrpc = [\"http://a\"]\npoll_interval = \"{poll_interval}\"");
        assert_eq!(good(&text).rules().check_wait_polls, polls, "{poll_interval}");
    }
}

#[test]
fn a_wallet_that_is_a_contract_of_a_coin_is_refused() {
    let address = wallet().address;
    bad(
        &format!(
            "[chains.eth]\nrpc = [\"http://a\"]\ntokens = [{{ coin = \"USDT\", contract = \"{address}\", decimals = 6 }}, {{ \
             coin = \"DAI\", contract = \"0x00000000000000000000000000000000000000bb\", decimals = 18 }}]"
        ),
        &[&format!(
            "chains.eth.tokens: {address} is the contract of USDT, and one of [[wallets]]: what is sent there is lost"
        )],
    );
}

#[test]
fn confirmations_have_four_forms() {
    assert_eq!(policy("12"), Policy::flat(Some(12), None));
    assert_eq!(policy("\"finalized\""), Policy::flat(None, Some(Tag::Finalized)));
    assert_eq!(policy("\"safe\""), Policy::flat(None, Some(Tag::Safe)));
    let both = policy("{ depth = 32, tag = \"finalized\" }");
    assert_eq!(both, Policy::flat(Some(32), Some(Tag::Finalized)));
    let tiered = policy(
        "{ tag = \"finalized\", tiers = [{ below = \"1000\", depth = 3 }, \
         { below = \"5000\", depth = 12, tag = \"safe\" }] }",
    );
    let below = |text| Amount::parse(text).ok();
    assert_eq!(
        tiered.tiers,
        [
            Tier { below: below("1000"), depth: Some(3), tag: None },
            Tier { below: below("5000"), depth: Some(12), tag: Some(Tag::Safe) },
            Tier { below: None, depth: None, tag: Some(Tag::Finalized) },
        ]
    );
}

/// No lag on chains whose blocks take over two seconds: the check of a second endpoint finds logs that come late.
#[test]
fn the_default_lag_is_about_two_seconds() {
    let lags = Blockchain::ALL.iter().map(|chain| (*chain, defaults(*chain).lag));
    let lags: Vec<_> =
        lags.filter(|(_, lag)| *lag > 0).map(|(chain, lag)| (chain.as_str(), lag)).collect();
    let some = [("polygon", 1), ("base", 1), ("arb", 8), ("op", 1), ("linea", 2), ("avaxc", 1)];
    assert_eq!(lags, some);
}

#[test]
fn default_policies_end_with_a_tier_for_any_amount() {
    for blockchain in Blockchain::ALL {
        let defaults = defaults(*blockchain);
        let (last, others) = defaults.policy.tiers.split_last().unwrap();
        assert_eq!(last.below, None, "{blockchain}");
        assert!(others.iter().all(|tier| tier.below.is_some()), "{blockchain}");
        assert!(*blockchain != Blockchain::Tron || !defaults.policy.uses(Tag::Safe));
    }
}

#[test]
fn all_problems_are_reported() {
    bad("", &["chains.eth: is missing: a wallet is on this chain"]);
    bad("[chains.eth]\n", &["chains.eth.rpc: must name at least one endpoint"]);
    bad(
        r#"[chains.eth]
        rpc = ["ftp://secret-key"]
        confirmations = 0
        poll_interval = "0s"
        lag = 33
        range_max = 0
        speed = 9
        tokens = [{ coin = "USDT", contract = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", decimals = 6 }]
        [chains.bsc]
        rpc = ["http://b"]"#,
        &[
            "chains.bsc: \"bsc\" is not one of eth, polygon, base, arb, op, linea, avaxc, tron",
            "chains.eth.rpc: must be a list of http or https URLs, or of { url, … }",
            "chains.eth.tokens[0].contract: is not an address of eth",
            "chains.eth.tokens: names no contract for USDT that is not retired, and a wallet takes it",
            "chains.eth.tokens: names no contract for DAI that is not retired, and a wallet takes it",
            "chains.eth.confirmations: must be a depth from 1 to 100000, \"finalized\", \"safe\", \
             or { depth, tag, tiers }",
            "chains.eth.range_max: must be a whole number from 1 to 1000000",
            "chains.eth.lag: must be a whole number from 0 to 32",
            "chains.eth.poll_interval: must be longer than zero",
            "chains.eth.speed: unknown key",
        ],
    );
}

#[test]
fn policies_and_tokens_that_make_no_sense() {
    bad(
        r#"[chains.eth]
        rpc = ["http://a"]
        confirmations = { tiers = [{ below = "5", depth = 1 }, { below = "5", depth = 2 }] }
        [chains.polygon]
        rpc = ["http://b"]
        confirmations = "safe"
        [chains.linea]
        rpc = ["http://b"]
        confirmations = { depth = 9, tag = "safe" }
        [chains.tron]
        rpc = ["http://b"]
        confirmations = "safe"
        tokens = []
        [chains.op]
        rpc = ["http://b"]
        confirmations = { tag = "latest" }
        [[chains.op.tokens]]
        coin = "USDC"
        contract = "0x00000000000000000000000000000000000000aa"
        decimals = 6
        [[chains.op.tokens]]
        coin = "USDC"
        contract = "0x00000000000000000000000000000000000000aa"
        decimals = 6
        [[chains.op.tokens]]
        coin = "USDC"
        contract = "0x00000000000000000000000000000000000000bb"
        decimals = 18"#,
        &[
            "chains.eth.confirmations.depth: is missing: give depth, tag, or both",
            "chains.eth.confirmations.tiers[1].below: must be greater than in the tier before",
            "chains.tron.confirmations: \"safe\" is not served on tron; use \"finalized\"",
            "chains.linea.confirmations.tag: \"safe\" is not served on linea; use \"finalized\"",
            "chains.polygon.confirmations: \"safe\" is not served on polygon; use \"finalized\"",
            "chains.tron.tokens: must be a list of { coin, contract, decimals }",
            "chains.op.confirmations.tag: must be \"finalized\" or \"safe\"",
            "chains.op.tokens[1].contract: is listed twice",
            "chains.op.tokens[2].decimals: must be the same for all contracts of a coin",
        ],
    );
}

#[test]
fn an_endpoint_may_be_a_table() {
    let chain = good(
        r#"[chains.eth]
        rpc = [
            "http://a",
            { url = "https://b", weight = 7, requests_per_second = 20, api_key = "k3y", api_key_header = "X-Key" },
        ]"#,
    );
    let [plain, table] = chain.endpoints.as_slice() else { panic!() };
    assert!(plain.api_key.is_none() && plain.requests_per_second.is_none());
    assert_eq!((table.weight, table.requests_per_second), (7, Some(20)));
    let api = table.api_key.as_ref().unwrap();
    assert_eq!((api.header.as_str(), api.key.expose()), ("x-key", b"k3y".as_slice()));
    assert!(!format!("{table:?}").contains("k3y"));
    // An environment variable is one text, so commas separate its endpoints.
    assert_eq!(good("[chains.eth]\nrpc = \"http://a, http://b\"").endpoints.len(), 2);
    let config = valid(
        "[chains.eth]\nrpc = [\"http://a\"]\n[chains.tron]\nrpc = [{ url = \"http://b\", api_key = \"k\" }]",
    );
    let api = config.chains[1].endpoints[0].api_key.as_ref().unwrap();
    assert_eq!(api.header.as_str(), "tron-pro-api-key");
    bad(
        r#"[chains.eth]
        rpc = [
            { url = "http://a", api_key = "k", weight = 0, speed = 1 },
            { url = "http://b", api_key = "k", api_key_header = "a b" },
            { url = "http://c", api_key_header = "A" },
            "http://c",
        ]"#,
        &[
            "chains.eth.rpc[0].weight: must be a whole number from 1 to 1000",
            "chains.eth.rpc[0].api_key_header: is missing: the header that takes api_key",
            "chains.eth.rpc[0].speed: unknown key",
            "chains.eth.rpc[1].api_key_header: is not the name of a header",
            "chains.eth.rpc[2].api_key: is missing: api_key_header is given",
            "chains.eth.rpc: names an endpoint twice",
        ],
    );
}

#[test]
fn a_chain_without_wallets_is_followed_all_the_same() {
    let config = valid("[chains.eth]\nrpc = [\"http://a\"]\n[chains.tron]\nrpc = [\"http://b\"]");
    assert_eq!(config.chains.len(), 2);
    assert_eq!(config.chains[1].blockchain, Blockchain::Tron);
    assert_eq!(config.chains[1].wallets, []);
}

#[test]
fn urls_hide_their_keys() {
    let text = "https://user:passw0rd@node.example:8443/v3/0123456789abcdef?apikey=zyxwvu";
    let url = RpcUrl::parse(text).unwrap();
    assert_eq!(url.to_string(), "https://node.example:8443");
    assert_eq!(format!("{url:?}"), "https://node.example:8443");
    for secret in ["passw0rd", "0123456789abcdef", "zyxwvu"] {
        assert!(url.secrets().iter().any(|found| found == secret), "{secret}");
    }
    for text in ["", "node.example", "ws://node.example", "http://"] {
        assert!(RpcUrl::parse(text).is_none(), "{text:?}");
    }
}

#[test]
fn trons_own_interface_is_guessed_or_given() {
    let native = |rpc: &str| {
        let config =
            valid(&format!("[chains.eth]\nrpc = \"http://a\"\n[chains.tron]\nrpc = {rpc}"));
        let native = config.chains[1].endpoints[0].native.clone();
        native.map(|native| (native.url.at("x").to_string(), native.is_given))
    };
    let guess = |url: &str| Some((url.to_owned(), false));
    assert_eq!(native("\"https://api.trongrid.io/jsonrpc\""), guess("https://api.trongrid.io/x"));
    assert_eq!(native("[\"https://p.example/key/jsonrpc/\"]"), guess("https://p.example/key/x"));
    assert_eq!(native("[{ url = \"http://a:1/jsonrpc\" }]"), guess("http://a:1/x"));
    assert_eq!(native("\"http://127.0.0.1:8545\""), None);
    assert_eq!(native("[{ url = \"http://a/jsonrpc\", native = \"\" }]"), None);
    let given = native("[{ url = \"http://a:8545/jsonrpc\", native = \"http://a:8091\" }]");
    assert_eq!(given, Some(("http://a:8091/x".to_owned(), true)));
    bad(
        r#"[chains.eth]
        rpc = [{ url = "http://a", native = "http://b" }]
        [chains.tron]
        rpc = [{ url = "http://a", native = "secret-text" }]"#,
        &[
            "chains.eth.rpc[0].native: is an interface of tron alone",
            "chains.tron.rpc[0].native: must be an http or https URL, or \"\" for none",
        ],
    );
}

#[test]
fn what_is_not_offered_is_watched() {
    let addresses = |contracts: &[StablecoinContract]| {
        contracts.iter().map(|contract| contract.address.to_string()).collect::<Vec<_>>()
    };
    let (usdt, other) = ("0xdAC17F958D2ee523a2206206994597C13D831ec7", format!("0x{:040x}", 0xcc));
    let section = |more: &str| {
        good(&format!(
            "[chains.eth]\nrpc = [\"http://a\"]\n{more}\ntokens = [\
             {{ coin = \"USDT\", contract = \"{other}\", decimals = 6 }}, \
             {{ coin = \"USDT\", contract = \"{usdt}\", decimals = 6, retired = true }}, \
             {{ coin = \"DAI\", contract = \"0x00000000000000000000000000000000000000bb\", decimals = 18 }}]"
        ))
    };
    let chain = section("");
    assert_eq!(addresses(&chain.contracts).len(), 2);
    assert_eq!(addresses(&chain.retired), [usdt]);
    assert_eq!(chain.unlisted.len(), 2, "USDC and DAI of their issuers");
    assert_eq!(chain.watched()[0].contracts.len(), 5);
    // On another network the known addresses are not those of the issuers.
    assert_eq!(section("chain_id = 31337").unlisted, []);
    bad(
        "[chains.eth]\nrpc = [\"http://a\"]\ntokens = [\
         { coin = \"USDT\", contract = \"0x00000000000000000000000000000000000000aa\", decimals = 6, retired = true }, \
         { coin = \"DAI\", contract = \"0x00000000000000000000000000000000000000bb\", decimals = 18 }]",
        &[
            "chains.eth.tokens: names no contract for USDT that is not retired, and a wallet takes it",
        ],
    );
}

#[test]
fn bridged_coins_are_for_the_operator_to_choose() {
    let on = |blockchain: Blockchain, stablecoins: &[Stablecoin], more: &str| {
        let address = Address::new(blockchain.address_family(), [7; 20]);
        let stablecoins = stablecoins.to_vec();
        let wallet = Wallet { blockchain, address, stablecoins, retired: false };
        let text = format!("[chains.{blockchain}]\nrpc = \"http://a\"\n{more}");
        let (config, problems) = read_with(wallet, &text);
        if !problems.is_empty() {
            return Err(problems);
        }
        let contracts = config.chains[0].contracts.iter();
        Ok(contracts.map(|contract| contract.address.to_string()).collect::<Vec<_>>())
    };
    let found = on(Blockchain::Polygon, &[Stablecoin::Usdt, Stablecoin::Usdc], "").unwrap();
    assert_eq!(found.len(), 2, "of the issuers");
    let found = on(Blockchain::Polygon, &[Stablecoin::Dai], "bridged = [\"DAI\", \"USDC.e\"]");
    let added = &found.unwrap()[2..];
    let (dai, usdc) = (
        "0x8f3Cf7ad23Cd3CaDbD9735AFf958023239c6A063",
        "0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174",
    );
    assert_eq!(added, [dai, usdc]);
    for (blockchain, more, problem) in [
        (
            Blockchain::Tron,
            "",
            "chains.tron.tokens: no contract of DAI on tron is known, and a wallet takes it: take it out of \
             enabled_coins",
        ),
        (
            Blockchain::Avaxc,
            "",
            "chains.avaxc.bridged: a wallet takes DAI, which on avaxc a bridge issued: add \"DAI.e\" if you trust it, \
             or take DAI out of enabled_coins",
        ),
        (
            Blockchain::Eth,
            "bridged = [\"DAI.e\"]",
            "chains.eth.bridged: \"DAI.e\" is not known on eth: none",
        ),
        (Blockchain::Arb, "bridged = [\"DAI\", \"DAI\"]", "chains.arb.bridged: names DAI twice"),
        (
            Blockchain::Linea,
            "bridged = [\"USDT\"]\ntokens = [{ coin = \"DAI\", contract = \
             \"0x00000000000000000000000000000000000000aa\", decimals = 18 }]",
            "chains.linea.bridged: has no meaning beside tokens: list the contracts there",
        ),
    ] {
        assert_eq!(on(blockchain, &[Stablecoin::Dai], more), Err(vec![problem.to_owned()]));
    }
}

/// A value at its limit is accepted, one beyond it is refused.
#[test]
fn lags_and_depths_have_a_limit() {
    let is_refused =
        |line: String| !read(&format!("[chains.eth]\nrpc = [\"http://a\"]\n{line}")).1.is_empty();
    let forms: [(u64, &dyn Fn(u64) -> String); 3] = [
        (LAG_MAX, &|lag| format!("lag = {lag}")),
        (DEPTH_MAX, &|depth| format!("confirmations = {depth}")),
        (DEPTH_MAX, &|depth| format!("confirmations = {{ depth = {depth} }}")),
    ];
    for (max, line) in forms {
        assert_eq!([max, max + 1].map(|of| is_refused(line(of))), [false, true], "{}", line(max));
    }
}
