"""A suite as projects have it: constraints, transactions that wait for one another, JSON, and a cache."""

import threading

from django.db import IntegrityError, connection, transaction
from django.db.models import Sum
from django.test import Client, TestCase, TransactionTestCase

from shop.models import Article, Order
from shop.views import cache

THREADS = 8


class Rules(TestCase):
    def test_the_server_is_postgresql(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select version()")
            self.assertIn("PostgreSQL", cursor.fetchone()[0])

    def test_names_are_unique(self) -> None:
        Article.objects.create(name="tea", stock=1)
        with self.assertRaises(IntegrityError), transaction.atomic():
            Article.objects.create(name="tea", stock=2)
        self.assertEqual(Article.objects.count(), 1)

    def test_articles_are_found_by_their_attributes(self) -> None:
        Article.objects.create(name="tea", stock=1, attributes={"origin": {"country": "JP"}})
        Article.objects.create(name="mate", stock=1, attributes={"origin": {"country": "AR"}})
        found = Article.objects.get(attributes__origin__country="AR")
        self.assertEqual(found.name, "mate")

    def test_a_large_value_is_read_as_it_was_written(self) -> None:
        text = "ä€" * 500_000
        Article.objects.create(name="book", stock=1, attributes={"text": text})
        self.assertEqual(Article.objects.get(name="book").attributes["text"], text)


class Orders(TransactionTestCase):
    def setUp(self) -> None:
        cache.flushall()

    def test_an_order_changes_the_stock_and_the_count(self) -> None:
        Article.objects.create(name="tea", stock=3)
        self.assertEqual(Client().get("/order/tea/2").json(), {"left": 1, "orders": 1})
        self.assertEqual(Client().get("/order/tea/2").status_code, 400)
        self.assertEqual(Order.objects.aggregate(sold=Sum("number"))["sold"], 2)
        self.assertEqual(cache.get("orders:tea"), b"1")

    def test_orders_at_once_wait_for_one_another(self) -> None:
        Article.objects.create(name="tea", stock=THREADS)
        codes = []

        def buy() -> None:
            try:
                codes.append(Client().get("/order/tea/1").status_code)
            finally:
                connection.close()

        threads = [threading.Thread(target=buy) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(codes, [200] * THREADS)
        self.assertEqual(Article.objects.get(name="tea").stock, 0)
        self.assertEqual(cache.get("orders:tea"), str(THREADS).encode())

    def test_subscribers_of_the_cache_get_messages(self) -> None:
        listener = cache.pubsub(ignore_subscribe_messages=True)
        listener.subscribe("news")
        listener.get_message(timeout=10)
        cache.publish("news", b"hello")
        message = listener.get_message(timeout=10)
        self.assertEqual(message["data"], b"hello")
        listener.close()
