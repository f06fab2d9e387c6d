//! Wallets and contracts watched later, and blocks from before the start.

use std::time::Duration;

use devnet::Devnet;
use schemas::record::{ChainBody, ChainRecord};
use schemas::{Address, Blockchain, Hash, Stablecoin, StablecoinContract};

use crate::ETH;
use crate::world::{PAYER, TOKEN, World, config, devnet, pay, wallet};

/// Token contract of another coin.
const OTHER: alloy_primitives::Address = alloy_primitives::Address::repeat_byte(0xbb);

fn address(of: alloy_primitives::Address) -> Address {
    Address::new(ETH.address_family(), of.0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn later_wallets_and_contracts_are_scanned() {
    let token =
        |address, symbol: &str| devnet::Token { address, decimals: 6, symbol: symbol.into() };
    let tokens = vec![token(TOKEN, "USDC"), token(OTHER, "USDT")];
    let served = devnet::Config { tokens, ..devnet::Config::default() };
    let devnet = Devnet::start(served, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let (chain, mut world) = (devnet.chain(), World::new());
    chain.mine(20).unwrap();
    let pay_other = |to: u16| {
        Hash(chain.transfer(OTHER, PAYER, wallet(to), alloy_primitives::U256::from(6)).unwrap().0)
    };
    let mut first = config(ETH, devnet.url());
    first.wallets.truncate(1);
    let run = world.run(first);
    world.until_head(ETH, &chain);
    let known = pay(&chain, 0, 5);
    pay(&chain, 1, 5);
    pay_other(0);
    world.mine(ETH, &chain, 1);
    run.stop().await;
    // Sent after the last scanned block, and before the new watches are announced.
    let meanwhile = [pay(&chain, 1, 7), pay_other(0)];
    chain.mine(3).unwrap();

    let mut second = config(ETH, devnet.url());
    second.stablecoins.insert(Stablecoin::Usdt);
    second.contracts.push(StablecoinContract {
        blockchain: ETH,
        stablecoin: Stablecoin::Usdt,
        address: address(OTHER),
        decimals: 6,
    });
    let run = world.run(second);
    world.until_head(ETH, &chain);
    let after = [pay(&chain, 1, 8), pay_other(1)];
    world.mine(ETH, &chain, 1);
    run.stop().await;

    let published = world.published(ETH);
    let all = [&[known][..], &meanwhile, &after].concat();
    assert_eq!(published.transactions(), all);
    let transfers = published.records.iter().enumerate();
    let transfers = transfers.filter_map(|(at, record)| match &record.body {
        ChainBody::Transfer(seen) => Some((at, record, *seen)),
        ChainBody::Watch(_) | ChainBody::Head(_) | ChainBody::Retract(_) => None,
    });
    for (at, record, seen) in transfers {
        let announces = |earlier: &&ChainRecord| match &earlier.body {
            ChainBody::Watch(watch) => {
                watch.wallet_address == seen.to_address && watch.contracts.contains(&seen.contract)
            }
            ChainBody::Transfer(_) | ChainBody::Head(_) | ChainBody::Retract(_) => false,
        };
        let announced = published.records[..at].iter().find(announces);
        let from = announced.expect("an announcement before the first transfer").block.number;
        assert!(from < record.block.number, "announced at {from}: {record:?}");
    }
    let watched = &published.progress.as_ref().unwrap().watched;
    assert!(watched.iter().all(|watch| watch.contracts == [address(TOKEN), address(OTHER)]));
    assert_eq!(watched.len(), 2);
}

/// Until it reaches the head, a chain scans without waiting for the poll interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn chain_catches_up_beside_a_live_one() {
    const LIVE: Blockchain = Blockchain::Base;
    let (old, live) = (devnet(0).await, devnet(20).await);
    let (chain, mut world) = (old.chain(), World::new());
    let mut sent = Vec::new();
    for block in 0..300 {
        if block % 7 == 0 {
            sent.push(pay(&chain, 0, 5));
        }
        chain.mine(1).unwrap();
    }
    let beside = world.run(config(LIVE, live.url()));
    world.until_head(LIVE, &live.chain());
    let mut whole = config(ETH, old.url());
    (whole.start_block, whole.range_max) = (Some(1), 20);
    whole.poll_interval = Duration::from_secs(3600);
    let run = world.run(whole);
    let mut live_sent = Vec::new();
    for _ in 0..5 {
        live_sent.push(pay(&live.chain(), 1, 6));
        world.mine(LIVE, &live.chain(), 1);
    }
    world.until_head(ETH, &chain);
    run.stop().await;
    beside.stop().await;
    assert_eq!(world.published(ETH).transactions(), sent);
    assert_eq!(world.published(LIVE).transactions(), live_sent);
}
