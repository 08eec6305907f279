//! Prints the JSON Schema of a policy: `cargo run -p cofferdam-policy --features schema --example schema`.

fn main() {
    print!("{}", cofferdam_policy::schema::json_schema_text());
}
