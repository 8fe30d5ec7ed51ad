"""The database and the cache are beside the run, under the names `db` and `cache`. PGPASSWORD has the password."""

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.views"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "postgres",
        "HOST": "db",
        "PORT": 5432,
        "OPTIONS": {"connect_timeout": 10},
    }
}
