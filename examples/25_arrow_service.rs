//! A service that takes Arrow record batches by reference: the columns are read where the client wrote them.
//!
//! Run: `cargo run -p tranship --features arrow,embedded,service --example 25_arrow_service`

use std::error::Error;
use std::sync::Arc;
use tranship::service::ServiceOptions;
use tranship::typed::arrow::{self, arrow_array, arrow_schema};
use tranship::typed::{Client, Fault, Service};
use tranship::{Buffer, Domain, PoolOptions, Trust};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, Float64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

#[tranship::service]
trait Statistics {
    /// The mean of the first column.
    fn mean(&self, batch: Buffer) -> Result<f64, String>;
}

struct Here;

impl Statistics for Here {
    fn mean(&self, batch: Buffer) -> Result<f64, String> {
        // Checked before it is used: the pool is of level `none`, so the client can no longer change what is here.
        let batch = arrow::read(batch).map_err(|error| error.to_string())?;
        let column = batch.columns().first().ok_or("no column")?;
        let column = column.as_primitive_opt::<Float64Type>().ok_or("no f64")?;
        Ok(column.values().iter().sum::<f64>() / column.len() as f64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::builder().helper_thread(true).embedded()?;
    let arrivals = ServiceOptions::new().arrivals(PoolOptions::new(64 << 20));
    let service =
        Service::<dyn Statistics>::serve_with(&domain, "statistics", Arc::new(Here), arrivals)?;
    std::thread::spawn(move || service.run());

    let socket = domain.socket_path().ok_or("no socket")?;
    let elsewhere = Domain::builder().socket(socket).connect()?;
    let sealed = ServiceOptions::new().pool(PoolOptions::new(64 << 20).trust(Trust::None));
    let client = Client::<dyn Statistics>::open_with(&elsewhere, "statistics", sealed)?;
    let schema = Schema::new(vec![Field::new("x", DataType::Float64, false)]);
    let column: Arc<dyn Array> =
        Arc::new(Float64Array::from_iter_values((0..100_000).map(f64::from)));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![column])?;
    let written = arrow::write(&batch, |len| client.untyped().alloc(len))?;
    println!("the mean is {}", client.mean(written.freeze())?);
    match client.mean(client.untyped().alloc(100)?.freeze()) {
        Err(Fault::Own(why)) => println!("refused: {why}"),
        other => println!("not refused: {other:?}"),
    }
    Ok(())
}
