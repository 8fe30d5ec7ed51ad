"""The messages of the API, generated from the proto files. Import them from cofferdam.v1."""
