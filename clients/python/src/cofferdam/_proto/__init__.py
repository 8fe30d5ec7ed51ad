"""The messages of the API, generated from `proto/`. Import them from `cofferdam.v1`."""
