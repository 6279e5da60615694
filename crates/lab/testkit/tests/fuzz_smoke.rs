//! The fuzz targets on seeded input: real messages, damaged in every usual way, and noise.

#[path = "../../fuzz/manager/mod.rs"]
mod manager;
#[path = "../../fuzz/nbd.rs"]
mod nbd;
#[path = "../../fuzz/targets.rs"]
mod targets;

use std::time::Duration;
use tranship_proto::*;
use tranship_region::layout::{Piece, aggregate};
use tranship_testkit::{Random, Watchdog};

fn rounds() -> usize {
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        5_000_000
    } else {
        20_000
    }
}

/// Damages a good input: bits, bytes, length, order, a part of another one.
fn damage(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let pick = |random: &mut Random| {
        seeds[usize::try_from(random.below(seeds.len() as u64)).expect("small")].clone()
    };
    let at = |random: &mut Random, len: usize| {
        usize::try_from(random.below(len.max(1) as u64)).expect("small")
    };
    let mut bytes = pick(random);
    for _ in 0..=random.below(4) {
        let i = at(random, bytes.len());
        match random.below(7) {
            0 if !bytes.is_empty() => bytes[i] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[i] = random.next().to_le_bytes()[0],
            2 if !bytes.is_empty() => bytes[i] = 0xff,
            3 => bytes.truncate(i),
            4 => bytes.insert(i, random.next().to_le_bytes()[0]),
            5 => bytes.splice(i.., pick(random).split_off(0)).for_each(drop),
            _ => bytes.extend(random.next().to_le_bytes()),
        }
    }
    bytes
}

fn run(name: &str, seeds: &[Vec<u8>], target: fn(&[u8])) {
    let _dog = Watchdog::within(Duration::from_secs(3600));
    let mut random = Random::printed(name);
    seeds.iter().for_each(|seed| target(seed));
    for _ in 0..rounds() {
        target(&damage(&mut random, seeds));
    }
}

#[test]
fn datagrams() {
    let req = Req(7);
    let (name, pool, channel) = ("a name".to_owned(), PoolId(3), ChannelId(4));
    let refusal = Refusal {
        code: RefusalCode::Quota,
        asked: 8192,
        available: 4096,
    };
    let requests = [
        Request::Hello {
            version: PROTOCOL_VERSION,
            name: name.clone(),
            resume: Some(DomainId(9)),
            dumpable: true,
        },
        Request::CreatePool {
            req,
            name: name.clone(),
            max_bytes: 1 << 30,
            slots: 1024,
            chunk_bytes: 65536,
            trust: tranship_proto::Trust::Producer,
        },
        Request::Connect {
            req,
            name,
            role: Role::Sink,
            lines: 256,
            wait: true,
        },
        Request::ClaimReader {
            req,
            pool,
            slots: 1024,
            table: u64::MAX,
            trust: tranship_proto::Trust::Producer,
            mapped: vec![(0, 1), (2, 3)],
        },
        Request::ShowChunks {
            req,
            pool,
            chunks: vec![(0, 1), (1, 2), (2, 3)],
            least: 2,
        },
        Request::Stat { req },
        Request::CloseChannel { channel },
    ];
    let events = [
        Event::Refused { req, refusal },
        Event::StatEnd { req },
        Event::Expelled { refusal },
        Event::Stat {
            req,
            record: StatRecord::Hold(HoldStat {
                domain: DomainId(1),
                pool,
                buffers: 2,
                bytes: 3,
                lingering_bytes: 2,
                held_ms: Some(1),
                ..HoldStat::default()
            }),
        },
    ];
    let mut seeds: Vec<_> = requests.iter().map(encode).collect();
    seeds.extend(events.iter().map(encode));
    // 20,000 zeros with their count in front would be a message, were it not too long.
    let mut long = vec![0xa0, 0x9c, 0x01];
    long.resize(3 + 20_000, 0);
    let refused = Err(DecodeError::TooLong { bytes: long.len() });
    assert_eq!(decode::<Vec<u8>>(&long), refused);
    run("datagrams", &seeds, targets::wire);
}

#[test]
fn lists_of_pieces() {
    let seeds: Vec<_> = [0, 1, 3, 40]
        .map(|n| {
            let pieces: Vec<_> = (0..n).map(|i| Piece::new(i, i * 64, 64, 1)).collect();
            let mut bytes = vec![0; aggregate::len(pieces.len())];
            aggregate::encode(&pieces, &mut bytes).expect("few");
            bytes
        })
        .into();
    run("lists_of_pieces", &seeds, targets::list);
}

#[test]
fn rings() {
    // Each step at least once, with a valid head and with an invalid one.
    let steps = |ops: &[u8]| -> Vec<u8> {
        let step = |op: &u8| [*op, 1, 0, 0, 0, 0, 0, 0, 0];
        ops.iter().flat_map(step).collect()
    };
    let seeds = [
        steps(&[3, 3, 3, 3, 3, 3]),
        steps(&[1, 2, 5, 2, 9, 2, 13, 2, 1, 2]),
        steps(&[0, 4, 2, 255, 255, 255, 255, 255, 255]),
    ];
    run("rings", &seeds, targets::ring);
}

#[test]
fn configurations() {
    let seeds = [
        "total = \"8GiB\"\nidle_exit = \"60s\"\n[limits]\npools = 3\n",
        "[[export]]\nuid = \"*\"\nname = \"pub/*\"\n[[reserved]]\nname = \"s\"\nuid = 0\n",
    ]
    .map(|text| text.as_bytes().to_vec());
    let _dog = Watchdog::within(Duration::from_secs(3600));
    let mut random = Random::printed("configurations");
    for _ in 0..rounds() / 10 {
        targets::config(&damage(&mut random, &seeds));
    }
}

/// Returns the files of inputs that are kept: findings, and inputs that are to be damaged.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds");
    let files = std::fs::read_dir(format!("{folder}/{target}")).expect("the folder");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let read = |path| std::fs::read(path).expect("a seed");
    paths.into_iter().map(read).collect()
}

/// Each round is a connection, or several.
fn run_connections(target: &str, rounds: usize, run: fn(&[u8])) {
    let _dog = Watchdog::within(Duration::from_secs(3600));
    let (mut random, seeds) = (Random::printed(target), kept(target));
    seeds.iter().for_each(|seed| run(seed));
    for _ in 0..rounds {
        run(&damage(&mut random, &seeds));
    }
}

#[test]
fn nbd_handshakes() {
    run_connections("nbd_handshake", rounds() / 40, nbd::handshake);
}

#[test]
fn nbd_requests() {
    run_connections("nbd_requests", rounds() / 40, nbd::requests);
}

/// Also of a run that is killed.
#[test]
fn nothing_is_left_in_the_temporary_folder() {
    nbd::handshake(&[]);
    let all = std::fs::read_dir(std::env::temp_dir()).expect("the folder");
    let all = all.flatten().map(|entry| entry.file_name());
    let own = format!("tranship-fuzz-{}", std::process::id());
    assert_eq!(all.filter(|name| *name == *own).count(), 0);
}

#[test]
fn manager_messages() {
    run_connections("manager_messages", rounds() / 200, manager::messages);
}

#[test]
fn manager_sequences() {
    run_connections("manager_sequences", rounds() / 200, manager::sequences);
}
