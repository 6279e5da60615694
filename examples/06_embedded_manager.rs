//! A manager inside the program, with a configuration of its own: no daemon, nothing installed. Limits hold the same.

use tranship::admin::StatRecord;
use tranship::manager::Config;
use tranship::{Domain, ErrorKind, PoolOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The same keys as in the daemon's file.
    let config = Config::parse(
        r#"
        total = "8MiB"
        [limits]
        pools = 2
        "#,
    )?;
    let domain = Domain::builder().name("app").config(config).embedded()?;

    let big = domain.create_pool(PoolOptions::new(64 << 20).name("big"))?;
    let small = domain.create_pool(PoolOptions::new(1 << 20).name("small"))?;
    let refused = domain.create_pool(PoolOptions::new(1 << 20).name("third"));
    let refused = refused.expect_err("two pools are allowed");
    println!("a third pool: {refused}");
    assert_eq!(refused, ErrorKind::Limit);

    // Larger than the pool's maximum: an error at once. Larger than the rest of the total: it would wait.
    let never = big.alloc(65 << 20).expect_err("it can never fit");
    println!("65 MiB: {never}");
    assert_eq!(never, ErrorKind::TooLarge);
    let half = big.alloc(7 << 20)?;
    let later = big.try_alloc(7 << 20).expect_err("the total is 8 MiB");
    println!("7 MiB more: {later}");
    assert_eq!(later, ErrorKind::OutOfMemory);
    let _little = small.alloc(1000)?;

    // The holders of buffers; `tranship ls` and `tranship stat` show the same.
    for record in domain.admin().stat()? {
        match record {
            StatRecord::Manager(m) => {
                println!(
                    "manager: {} of {} bytes granted",
                    m.granted_bytes, m.total_bytes
                );
                assert!(m.granted_bytes <= m.total_bytes && m.total_bytes == 8 << 20);
            }
            StatRecord::Pool(p) => println!("pool {}: {} bytes", p.name, p.granted_bytes),
            _ => {}
        }
    }
    drop(half);
    drop(big.try_alloc(7 << 20)?);
    Ok(())
}
